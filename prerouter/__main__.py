"""`python -m prerouter`, for launchers that start a module."""

from prerouter.cli.main import main

main()
