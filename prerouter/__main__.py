"""The program: `python -m prerouter` and the console script, which a Ctrl-C ends with one line."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, imported inside so that an interrupt of its imports is caught too."""
    try:
        from prerouter.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("stopped; finished rows are kept, run again to go on\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
