# make demo   calibrate a real network that comes along, and write report.html about it
# make test   everything that CI runs: lint, types, architecture, tests
# make docs   the site, strictly, into site/: every link and every reference must hold
# make bench  the timing tables, beside the peers
# make lint   the checks without the tests
# make format rewrite the sources in the house style
# make clean  forget the virtual environment and every cache

PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO   ?= .venv-demo

.PHONY: demo test docs bench lint format install clean

install: $(STAMP)

$(STAMP): pyproject.toml Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $(STAMP)

# What a user installs and nothing more: no torch, no tools of ours.
$(DEMO)/.installed: pyproject.toml
	test -x $(DEMO)/bin/python || $(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $(DEMO)/.installed

demo: $(DEMO)/.installed
	$(DEMO)/bin/refocal demo --output report.html

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	touch $(VENV)/.docs

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site is in site/: open site/index.html"

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/metrics.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(DEMO) report.html site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
