# make demo    train, evaluate and try a tagger of medical phrases
# make test    everything CI runs: format, lint, types, import layers, the docs site, all tests
# make docs    the docs site, in build/site; a warning is an error
# make fuzz    look for inputs that no reader expects, SECONDS (60) for each of them
# make crash   kill 200 processes in the middle of each kind of writing
# make mutants change the code in small ways, and list the changes that no test notices
# make test-matrix   quick tests with other Pythons (PYTHONS), and the lowest versions allowed
# make bench   the benchmarks (LABELRY_DATA=folder adds those on real data)

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test check quick docs fuzz crash mutants test-matrix format bench clean

demo: $(VENV)/.demo
	$(BIN)/labelry demo

test: check docs
	$(BIN)/python -m pytest -n auto --dist worksteal

quick: check
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/private_names.py src

docs: $(VENV)/.dev
	$(BIN)/python -m sphinx -q -W --keep-going docs build/site

SECONDS ?= 60
fuzz: $(VENV)/.dev
	LABELRY_FUZZ_SECONDS=$(SECONDS) $(BIN)/python -m pytest -n auto tests/fuzz

crash: $(VENV)/.dev
	LABELRY_CRASHES=200 $(BIN)/python -m pytest tests/test_crashes.py

MUTANTS ?= --only cli storage checks.py memory.py server --number 60
mutants: $(VENV)/.dev
	$(BIN)/python tools/mutants.py $(MUTANTS)

# An interpreter that is not there is left out, aloud. The lowest versions are for Python 3.11.
PYTHONS ?= python3.11 python3.12 python3.13
MATRIX_TESTS := tests/cli/test_help.py tests/data tests/linalg tests/metrics tests/trees tests/test_checks.py tests/test_format.py tests/test_modelfile.py
test-matrix:
	mkdir -p build/matrix
	python3 tests/lowest_versions.py pyproject.toml > build/matrix/lowest.txt
	set -e; for python in $(PYTHONS) lowest; do \
	  interpreter=$$python; constraint=; \
	  if [ $$python = lowest ]; then interpreter=python3.11; constraint="-c build/matrix/lowest.txt"; fi; \
	  if ! $$interpreter -c "" 2> build/matrix/error.txt; then echo "LEFT OUT: there is no $$interpreter here"; continue; fi; \
	  $$interpreter -m venv build/matrix/$$python; \
	  build/matrix/$$python/bin/python -m pip install --quiet '.[formats]' hypothesis pytest $$constraint; \
	  build/matrix/$$python/bin/python -m pytest -q -m "not slow" $(MATRIX_TESTS); \
	done

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/passes.py
	$(BIN)/python benchmarks/parse.py
	$(BIN)/python benchmarks/text.py
	$(BIN)/python benchmarks/check_metrics.py
	$(BIN)/python benchmarks/scale.py --part 0.01
ifdef LABELRY_DATA
	$(BIN)/python benchmarks/one_vs_rest.py
	$(BIN)/python benchmarks/rembrandt.py "$(LABELRY_DATA)" multilabel
	$(BIN)/python benchmarks/rembrandt.py "$(LABELRY_DATA)" siblings
	$(BIN)/python benchmarks/rembrandt.py "$(LABELRY_DATA)" aloi
endif

# One stamp file for each set of extras, so that an install happens once and after changes.
$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("labelry needs Python 3.11 or newer, found " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -e '.[demo,serve]'
	touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $@

$(VENV)/.bench: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -e '.[bench]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
