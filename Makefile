# Every target works from a fresh clone: the first call makes .venv and installs what it needs, later calls skip that.
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
BIN := $(VENV)/bin
CODE := src tests examples $(wildcard benchmarks distributions training)

# Threads that spin while they wait make torch ten times slower on a machine that is busy with something else. Not for
# the benchmark, which wants the machine for itself.
demo test: export OMP_WAIT_POLICY ?= passive

.DEFAULT_GOAL := help
.PHONY: help demo test lint format types bench clean

help:
	@echo "make demo     explain a photo of a cat: writes out/cat.png and out/cat.html"
	@echo "make test     all that CI runs: lint, types, tests (JOBS=$(JOBS) processes)"
	@echo "make bench    compare with peers: writes out/bench"
	@echo "make lint     ruff check, ruff format --check"
	@echo "make format   let ruff mend what it can"
	@echo "make clean    remove what was built; $(VENV) stays"

demo: $(VENV)/.demo-stamp
	$(BIN)/python examples/explain_photo.py --out out

test: lint types
	$(BIN)/python -m pytest -n $(JOBS)

lint: $(VENV)/.dev-stamp
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

types: $(VENV)/.dev-stamp
	$(BIN)/mypy

format: $(VENV)/.dev-stamp
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

bench: $(VENV)/.bench-stamp
	$(BIN)/python -m benchmarks --out out/bench

# One stamp per extra: .demo-stamp stands for "pip install .[demo] was done with these files as they are". The weights are a
# distribution of their own, which is installed from the checkout too.
MODELS := distributions/integrand-models
$(VENV)/.%-stamp: pyproject.toml constraints.txt $(MODELS)/pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e $(MODELS) -e '.[$*]'
	@touch $@

.PRECIOUS: $(VENV)/.%-stamp

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} +
