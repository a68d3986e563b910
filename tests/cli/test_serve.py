from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prerouter.cli.main import app
from prerouter.cli.serve import find_key
from prerouter.core.errors import InputError
from prerouter.core.records import AnswerModel, Route, StudentMode
from prerouter.publishing.checkpoint import write_router
from prerouter.runs.rows import file_sha256
from prerouter.serving.client import Client, ServiceError
from prerouter.serving.wire import AskedCase

from ..router_config import router_config
from ..tiny_model import make_tiny_model


def test_a_key_is_asked_for_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREROUTER_API_KEY", raising=False)
    monkeypatch.setenv("MY_KEY", " mine ")
    assert find_key(None) is None
    assert find_key("MY_KEY") == "mine"
    monkeypatch.setenv("PREROUTER_API_KEY", "usual")
    assert find_key(None) == "usual"


def test_a_key_that_was_named_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(InputError, match="MY_KEY is not set; export MY_KEY"):
        find_key("MY_KEY")
    monkeypatch.setenv("MY_KEY", "two words")
    with pytest.raises(InputError, match="a sign that no header takes") as refused:
        find_key("MY_KEY")
    assert "words" not in str(refused.value)


@pytest.mark.parametrize("blank", ["", "  "])
@pytest.mark.parametrize("name", [None, "PREROUTER_API_KEY"])
def test_a_key_that_is_blank_is_no_leave_to_ask_for_none(
    name: str | None, blank: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREROUTER_API_KEY", blank)
    with pytest.raises(InputError, match="PREROUTER_API_KEY is blank"):
        find_key(name)


def test_one_threshold_is_enough() -> None:
    given = ["serve", "--router=r", "--threshold=0.5", "--threshold-file=t.json"]
    done = CliRunner().invoke(app, given)
    assert isinstance(done.exception, InputError)
    assert "one of the two" in str(done.exception)


@pytest.mark.parametrize("option", ["--threshold=nan", "--timeout=nan", "--timeout=0", "--queue=0"])
def test_a_number_that_makes_no_sense_is_wrong_usage(option: str) -> None:
    assert CliRunner().invoke(app, ["serve", "--router=r", option]).exit_code == 2


def test_a_folder_is_served_until_it_is_told_to_stop(tmp_path: Path) -> None:
    config = router_config()
    folder = write_router(make_tiny_model(tmp_path / "model"), tmp_path / "r", config, "# card\n")
    checkpoint = file_sha256(folder / "model.safetensors")
    threshold = tmp_path / "threshold.json"
    threshold.write_text(json.dumps({"threshold": -1, "threshold_for": checkpoint}))
    command = [sys.executable, "-m", "prerouter", "serve", "--router", str(folder), "--port", "0"]
    with subprocess.Popen(
        [*command, "--host", "0.0.0.0", "--mode", "decide", "--threshold-file", str(threshold)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PREROUTER_API_KEY": "key"},
    ) as process:
        assert process.stdout
        assert process.stderr
        told = process.stdout.readline()
        assert f"checkpoint {checkpoint[:12]}, mode decide, fallback LC" in told
        port = told.partition("/v1/route")[0].rpartition(":")[2]
        client = Client(f"http://127.0.0.1:{port}", "key")
        asked = AskedCase(question="Who?", answer_model=AnswerModel(name="reader"))
        (decision,) = client.decide(asked)
        assert decision.route is Route.LC
        assert decision.p_lc is not None
        assert decision.router.checkpoint == checkpoint
        assert client.health().mode is StudentMode.DECIDE
        with pytest.raises(ServiceError, match="no valid key"):
            Client(f"http://127.0.0.1:{port}").decide(asked)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        # A key is asked for, so being open to all is no reason to warn.
        assert "warning" not in process.stderr.read()
