"""Ask the installed vLLM whether `vllm serve` would take these options; start nothing.

    python scripts/check_serve_options.py MODEL [any option of `vllm serve`]

Exit codes: 0 it takes them; 1 it refuses them, and says why; 3 vLLM isn't installed here.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import sys
from collections.abc import Sequence


def problem(options: Sequence[str]) -> str | None:
    """Why vLLM would refuse `options`, or None. Raises ImportError without vLLM."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser(exit_on_error=False))
    known = [name for action in parser._actions for name in action.option_strings]
    for option in options:
        name = option.partition("=")[0]
        # Dots reach into a JSON option, underscores stand for dashes.
        base = name.partition(".")[0].replace("_", "-")
        if name.startswith("--") and base not in known:
            near = difflib.get_close_matches(base, known, n=1)
            return f"{name}: unknown; " + (f"did you mean {near[0]}?" if near else "remove it")
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            validate_parsed_serve_args(parser.parse_args(list(options)))
    except SystemExit:
        # The reason stands after a page of usage.
        return said.getvalue().strip().rpartition("error: ")[2]
    except (argparse.ArgumentError, TypeError, ValueError) as error:
        return str(error)
    return None


def main(options: Sequence[str]) -> int:
    if not options:
        print("usage: check_serve_options.py MODEL [any option of vllm serve]", file=sys.stderr)
        return 2
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    try:
        found = problem(options)
    except ImportError as error:
        print(f"options not checked: {error.name or 'vllm'} isn't installed here", file=sys.stderr)
        return 3
    if found:
        print(f"vllm serve refuses this: {found}", file=sys.stderr)
    return int(found is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
