# make demo    train, evaluate and try a tagger of medical phrases
# make test    everything CI runs: format, lint, types, import layers, all tests
# make bench   the benchmarks (LABELRY_DATA=folder adds those on real data)

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test check quick format bench clean

demo: $(VENV)/.demo
	$(BIN)/labelry demo

test: check
	$(BIN)/python -m pytest -n auto --dist worksteal

quick: check
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

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
