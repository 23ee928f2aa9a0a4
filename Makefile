# make demo   calibrate a real network that comes along, and write report.html about it
# make test   everything that CI runs: lint, types, architecture, tests
# make bench  the timing tables, beside the peers
# make stress every stress case on refocal and its peers, the huge ones too: writes docs/stress.md
# make fuzz   mutated files against every reader, RUNS executions each
# make dist   the source archive and the wheel, the same bytes each time, checked and tried in an empty environment
# make lint   the checks without the tests
# make format rewrite the sources in the house style
# make clean  forget the virtual environment and every cache

PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO   ?= .venv-demo
RUNS   ?= 100000
# The date of the last commit: what is built from the same sources is the same file.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 1700000000)

.PHONY: demo test bench stress fuzz dist lint format install clean

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

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/metrics.py

stress: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/stress.py

fuzz: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/fuzz.py --plain --runs $(RUNS)

dist: $(STAMP)
	rm -rf dist .venv-dist
	$(BIN)/python -m pip install --quiet build twine
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd .venv-dist && bin/refocal demo --output report.html

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(DEMO) .venv-dist report.html build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
