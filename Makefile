# `make quickstart` and `make test` are all a newcomer needs; both work on a fresh machine with Python 3.11 or newer.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Numerics of the tests run on one thread each; pytest itself runs in parallel.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help quickstart install test lint cuda superlink chaos validation papers papers-long board format docs wheel clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fedsim needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

# torch comes first and pinned, so that nothing that follows can pull another build of it.
$(VENV)/.torch: $(BIN)/python constraints.txt
	@echo "installing torch (a download of about 200 MB)"
	$(PIP) install --quiet -c constraints.txt torch
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	$(PIP) install --quiet -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) install --quiet -c constraints.txt -e ".[test]"
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) install --quiet -c constraints.txt -e ".[docs]"
	@touch $@

install: $(VENV)/.installed ## create .venv and install fedsim in it

quickstart: $(VENV)/.installed ## install fedsim and run the first scenario
	$(BIN)/fedsim run scenarios/quickstart.yaml --overwrite

lint: $(VENV)/.installed-test ## style, formatting, types, import rule
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint ## lint, then all tests
	$(BIN)/pytest

cuda: ## tests and benchmarks that need a GPU, by a Python with torch for CUDA: make cuda PYTHON=python3
	$(PYTHON) -m benchmarks.cuda

superlink: $(VENV)/.installed-test ## deployments on a real SuperLink with five SuperNodes, also killed ones; three minutes
	$(BIN)/pytest -n 0 -m superlink tests/flower

chaos: $(VENV)/.installed-test ## killed, damaged and starved runs, and every other command that writes; half an hour
	$(BIN)/python -m benchmarks.chaos --minutes 5
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.chaos_commands --trials 3

papers: $(VENV)/.installed ## small sweeps of the five papers, and the tables from them; resumable
	$(BIN)/python -m benchmarks.papers run

papers-long: $(VENV)/.installed ## their CNN and Fashion-MNIST runs, hours on a CPU; resumable
	$(BIN)/python -m benchmarks.papers run --long

board: $(VENV)/.installed ## every method on every scenario of the board, hours; resumable
	$(BIN)/python -m benchmarks.board

validation: $(VENV)/.installed-test ## compare with kernel TCP and real processes; hours, resumable
	$(BIN)/python -m benchmarks.validation.tcp_oracle measure
	$(BIN)/python -m benchmarks.validation.tcp_oracle table
	$(BIN)/python -m benchmarks.validation.ns3_oracle run
	$(BIN)/python -m benchmarks.validation.series run
	$(BIN)/python -m benchmarks.validation.series run --again
	-$(BIN)/python -m benchmarks.validation.series run --series ii
	-$(BIN)/python -m benchmarks.validation.series run --series ii --again
	$(BIN)/python -m benchmarks.validation.series report
	$(BIN)/python -m benchmarks.validation.coverage

format: $(VENV)/.installed-test ## fix style and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed-docs ## write the reference pages and build the documentation in site/
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

wheel: $(BIN)/python ## build sdist and wheel in dist/
	$(PIP) install --quiet build
	$(BIN)/python -m build --outdir dist

clean: ## remove what was built (not .venv, not runs/)
	rm -rf dist build site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
