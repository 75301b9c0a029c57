.DEFAULT_GOAL := help
.PHONY: help test test-torch test-ray demo lint bench house docs clean

PYTHON ?= python3
WORKERS ?= 2
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TREE := $(wildcard src tests examples benchmarks docs/*.py)
TORCH := .venv-torch
TORCH_STAMP := $(TORCH)/.installed
RAY := .venv-ray
RAY_STAMP := $(RAY)/.installed

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo 'PYTHON=python3.12 picks the interpreter, ARGS="-k factory" goes on to the tool.'

# Variables, not -c: they hold for the build backend too. pip from 25.3 on reads the second one for it.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "onebasin needs Python 3.11 or newer, and '$(PYTHON)' is not: run make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing into $(VENV); the first time takes a few minutes."
	PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
	  $(BIN)/python -m pip install --disable-pip-version-check -e '.[dev]'
	@touch $@

test: $(STAMP) ## Run the tests (ARGS go to pytest)
	JAX_PLATFORMS=cpu $(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

# An environment of its own: the other one shows that nothing needs PyTorch.
$(TORCH_STAMP): pyproject.toml constraints.txt
	@$(TORCH)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(TORCH)
	@echo "Installing PyTorch and the tests into $(TORCH); the first time takes a few minutes."
	PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
	  $(TORCH)/bin/python -m pip install --disable-pip-version-check -e '.[fast,test,torch]'
	@touch $@

test-torch: $(TORCH_STAMP) ## Install PyTorch and run its tests (ARGS go to pytest)
	JAX_PLATFORMS=cpu $(TORCH)/bin/python -m pytest -n $(WORKERS) tests/pytorch $(ARGS)

# An environment of its own, for the same reason. One process: the tests start clusters.
$(RAY_STAMP): pyproject.toml constraints.txt
	@$(RAY)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(RAY)
	@echo "Installing Ray and the tests into $(RAY); the first time takes a few minutes."
	PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
	  $(RAY)/bin/python -m pip install --disable-pip-version-check -e '.[fast,test,ray]'
	@touch $@

test-ray: $(RAY_STAMP) ## Install Ray and run its tests (ARGS go to pytest)
	JAX_PLATFORMS=cpu $(RAY)/bin/python -m pytest -n 0 tests/on_ray $(ARGS)

demo: $(STAMP) ## Bring HMC on digits into one basin, fit one Gaussian, judge it, write a report
	$(BIN)/onebasin demo $(ARGS)

lint: $(STAMP) ## Check style, types and the direction of imports
	$(BIN)/ruff check $(TREE)
	$(BIN)/ruff format --check $(TREE)
	$(BIN)/mypy $(wildcard src examples benchmarks docs/page_numbers.py docs/speed_numbers.py docs/pictures.py)
	$(BIN)/mypy --allow-untyped-defs --allow-incomplete-defs $(addprefix --disable-error-code=,arg-type union-attr type-var operator) tests
	$(BIN)/lint-imports

bench: $(STAMP) ## Run every script in benchmarks/
	@set -e; for script in $(sort $(wildcard benchmarks/*.py)); do \
	  echo "$$script"; $(BIN)/python "$$script" $(ARGS); done

house: $(STAMP) ## Count lines, long signatures, imports past doors, and how far functions reach
	JAX_PLATFORMS=cpu $(BIN)/python benchmarks/house.py --readings $(ARGS)

docs: $(STAMP) ## Build the documentation into docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

clean: ## Remove caches and build outputs; keeps the environments
	rm -rf build dist docs/_build .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests examples -name __pycache__ -type d -prune -exec rm -rf {} +
