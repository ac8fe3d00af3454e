# From a fresh clone with python3 and pip: `make demo` opens the console on a simulated GPU host,
# `make test` runs everything that must hold. Both make .venv first, once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help demo test lint format test-engine test-containers test-browser snapshots clean

help:
	@echo "make demo         the console on a simulated GPU host (a script where there is no terminal)"
	@echo "make test         formatting, lint, types, import contracts and tests"
	@echo "make lint         all of that but the tests"
	@echo "make format       format the code"
	@echo "make test-engine  tests against a real engine (see CONTRIBUTING.md)"
	@echo "make test-browser the console in a real browser (see CONTRIBUTING.md)"
	@echo "make test-containers  servers in real containers (see CONTRIBUTING.md)"
	@echo "make snapshots    write the screens that the console's tests compare with again"
	@echo "make clean        remove .venv and caches"

demo: $(INSTALLED)
	@$(BIN)/eaglemon demo

# Two workers for each core: half of the time tests wait for processes and links.
WORKERS ?= $(shell nproc 2>/dev/null | awk '{n = 2 * $$1; print n < 8 ? n : 8}')

test: lint
	$(BIN)/pytest -n $(or $(WORKERS),auto) --dist worksteal

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test-engine: $(INSTALLED)
	$(BIN)/pytest -m engine -s -o faulthandler_timeout=900 tests/real_engine

test-browser: $(INSTALLED)
	$(BIN)/pytest -m browser -s tests/browser

test-containers: $(INSTALLED)
	$(BIN)/pytest -m containers tests/hosts3

snapshots: $(INSTALLED)
	UPDATE_FRAMES=1 $(BIN)/pytest tests/tui
	PYTHONPATH=. $(BIN)/python docs/make_reference.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build

# Debian ships python3 without venv; virtualenv from a folder of its own does the same there.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "eaglemon needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V 2>&1); try make PYTHON=python3.12" >&2; \
	  exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) || { \
	  echo "no venv module here, using virtualenv" >&2; \
	  rm -rf $(VENV); \
	  $(PYTHON) -m pip install --quiet --target $(VENV).boot virtualenv && \
	  PYTHONPATH=$(VENV).boot $(PYTHON) -m virtualenv --quiet $(VENV) && \
	  rm -rf $(VENV).boot; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,draft]'
	@touch $@
