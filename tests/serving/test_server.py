from __future__ import annotations

import subprocess
import sys

STOPPED_BEFORE_IT_RUNS = """
import os, signal
from prerouter.routers.fixed import AlwaysRag
from prerouter.serving.served import as_served
from prerouter.serving.server import open_socket, serve
from prerouter.serving.service import Limits, make_app

app = make_app(as_served(AlwaysRag()), Limits())
serve(app, open_socket("127.0.0.1", 0), 1, lambda: os.kill(os.getpid(), signal.SIGTERM))
print("returned")
"""


def test_a_signal_that_comes_before_the_first_request_stops_it() -> None:
    command = [sys.executable, "-c", STOPPED_BEFORE_IT_RUNS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout) == (0, "returned\n"), done.stderr
