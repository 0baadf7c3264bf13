# Every target works on a fresh machine with Python >= 3.10, make and a C++17 compiler; CMake comes by pip.
#   make test VENV=/tmp/env     makes (or completes) that environment instead of .venv
#   make test ENV=/path/to/env  uses an existing environment as it is and installs nothing
# The paths of this folder and of VENV must hold no spaces: make splits names at them.

PYTHON ?= python3
VENV ?= .venv
CONFIG ?= examples/configs/debian_sage.yaml
ARGS ?=
SECONDS ?= 60
SEED ?= 0
CASES ?= 100000
TRIALS ?= 48
RELEASE ?= 2.5.0

ifdef ENV
BIN := $(ENV)/bin
else
BIN := $(VENV)/bin
ready := $(VENV)/.ready
lint_ready := $(VENV)/.ready-lint
docs_ready := $(VENV)/.ready-docs
endif
PIP = $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests --numprocesses logical --maxprocesses 4 --dist loadfile \
	--no-loadscope-reorder
docs_packages = $(shell sed -n 's/^docs = \[\(.*\)\]/\1/p' pyproject.toml | sed 's/", "/" "/g')
version = $(shell sed -n 's/^__version__ = "\([0-9]*\.[0-9]*\).*/\1/p' lightning_gnnload/__init__.py)
kernel_sources := $(shell find kernels -type f \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' \))

.DEFAULT_GOAL := help
.PHONY: help setup setup-lint train test test-all test-matrix test-hunt test-oldest test-gpu gpu-report test-lightning test-pyg test-relbench test-dgl mutations bench compare bench-strategy bench-features bench-partition bench-gpu docs docs-version wheels house lint ruff names mypy imports clang-format kernels cuda sanitize fuzz cluster clean distclean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "ARGS=... adds arguments to train, test and bench; see the head of the Makefile for PYTHON, VENV and ENV."

setup: $(ready)  ## the environment that train and test need, without running anything

setup-lint: $(lint_ready)  ## the environment that lint needs, too

train: $(ready)  ## train GraphSAGE on the Debian package graph (CONFIG=... for another run)
	$(BIN)/gnnload fit --config $(CONFIG) $(ARGS)

test: $(ready)  ## what each change must pass, in minutes (tests/rings.py; ARGS='-n 0' for one process)
	$(PYTEST) -m law $(ARGS)

test-all: $(ready)  ## that, and the same under other launchers, versions and formats
	$(PYTEST) -m "law or matrix" $(ARGS)

test-matrix: $(ready)  ## what test-all runs beyond test
	$(PYTEST) -m matrix $(ARGS)

test-hunt: $(ready)  ## what looks for faults that nobody has thought of
	$(PYTEST) -m hunt $(ARGS)

mutations: $(ready)  ## plant faults one by one, and list those that no test of law catches (ARGS=--whole: the ring, each)
	$(BIN)/python -m tests.mutations $(ARGS)

test-oldest: build/lightning-$(RELEASE)/.ready  ## the tests nearest to Lightning under the oldest that works (RELEASE=2.5.6 for another)
	OMP_NUM_THREADS=1 $(<D)/bin/python -m pytest tests/unit/plugin tests/unit/pyg tests/integration/test_resume.py $(ARGS)

test-gpu: $(ready)  ## the tests of the CUDA path on a GPU
	$(BIN)/python -m pytest tests/gpu tests/cuda $(ARGS)

gpu-report: $(ready)  ## examine a GPU, test on it and measure it, in five minutes, into build/gpu-report (ARGS='--steps doctor' for a part)
	$(BIN)/python scripts/gpu_report.py $(ARGS)

test-lightning: $(ready)  ## Lightning's own tests with FactoredStrategy in DDP's place (LIGHTNING=path of its repository)
	$(BIN)/python -m tests.lightning "$(LIGHTNING)" $(ARGS)

test-pyg: $(ready)  ## PyG's own tests with our loaders in the place of PyG's (PYG=path of its repository, RELBENCH=path too)
	$(BIN)/python -m tests.pyg_suite "$(PYG)" --relbench "$(RELBENCH)" $(ARGS)

test-relbench: $(ready)  ## RelBench's examples: equal metrics by PyG's loaders and ours (RELBENCH=path, PYG_PYTHON=one with pyg-lib)
	$(BIN)/python -m tests.pyg_suite.examples "$(RELBENCH)" --pyg-python "$(PYG_PYTHON)" $(ARGS)

test-dgl: $(ready)  ## DGL's examples: equal metrics by DGL's loader and ours (DGL=path of its repository)
	$(BIN)/python -m tests.dgl_suite "$(DGL)" $(ARGS)

bench: $(ready)  ## measure side by side with DGL and other peers (ARGS=--quick for the small graph alone)
	$(BIN)/python -m tests.benchmarks $(ARGS)

compare: $(ready)  ## the README's table on this machine, with environments for the peers (ARGS=--quick for a trial)
	$(BIN)/python -m tests.benchmarks.peers --environments build/peers --out build/compare.md $(ARGS)

bench-strategy: $(ready)  ## measure what the strategy's parts win and cost (ARGS='--parts jitter' for one of them)
	$(BIN)/python -m tests.benchmarks.strategy $(ARGS)

bench-features: $(ready)  ## measure what caches and tiers of features win and cost (ARGS='--parts disk' for one of them)
	$(BIN)/python -m tests.benchmarks.features $(ARGS)

bench-partition: $(ready)  ## measure what parts of graphs cost and save (ARGS='--parts collective' for one of them)
	$(BIN)/python -m tests.benchmarks.partition $(ARGS)

bench-gpu: $(ready)  ## measure the CUDA path on a GPU (ARGS='--parts gpu_gather' for one of its parts)
	$(BIN)/python -m tests.benchmarks.gpu $(ARGS)

# The theme's maintainers announce its successor at each build; the pinned release is what is used here.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(docs_ready)  ## the documentation site, into site/: open site/index.html
	$(BIN)/python -m mkdocs build --strict

docs-version: export NO_MKDOCS_2_WARNING = 1
docs-version: $(docs_ready)  ## commit the site of this version to the branch gh-pages, beside those of others
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/mike deploy --update-aliases $(version) latest
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/mike set-default latest

wheels:  ## wheels for CPython 3.10 to 3.13 into dist/, each tried in a bare environment
	$(PYTHON) scripts/make_wheels.py $(ARGS)

house: $(ready)  ## redraw the picture of the layers, and list the classes in the glossary
	$(BIN)/python docs/house.py

# Where LG_WERROR is set, the installed kernels have been compiled with warnings as errors.
lint: ruff names mypy imports clang-format cuda $(if $(LG_WERROR),,kernels)  ## every static check (make -k lint goes on after a failure)

ruff: $(lint_ready)  ## style of the Python code
	$(BIN)/ruff check
	$(BIN)/ruff format --check

names: $(ready)  ## names that say nothing, and one name for two things
	$(BIN)/python docs/names.py

mypy: $(lint_ready)  ## types
	$(BIN)/mypy

imports: $(lint_ready)  ## layers: imports point downward only
	$(BIN)/lint-imports

clang-format: $(lint_ready)  ## style of the C++ code
	$(BIN)/clang-format --dry-run --Werror $(kernel_sources) tests/cluster/delay_proxy.cpp tests/cuda/*.cpp tests/cuda/*.h

kernels: $(lint_ready)  ## compile the kernels with warnings as errors
	$(BIN)/cmake -S kernels -B build/werror -G Ninja -DCMAKE_BUILD_TYPE=Release -DLG_WERROR=ON \
		-DCMAKE_MAKE_PROGRAM="$(abspath $(BIN))/ninja" -DPython_EXECUTABLE="$(abspath $(BIN))/python" \
		-Dnanobind_DIR="$$($(BIN)/python -m nanobind --cmake_dir)" --log-level=WARNING
	$(BIN)/cmake --build build/werror

cuda: $(lint_ready)  ## compile the CUDA kernels with NVRTC, without a GPU, and check what launches them
	$(BIN)/python -m kernels.check_cuda

sanitize: $(ready)  ## the kernels' tests, and a little fuzzing, under the address and undefined-behaviour sanitizers
	PATH="$(abspath $(BIN)):$$PATH" kernels/sanitize.sh

fuzz: $(ready)  ## random requests, then random files and arguments, under the sanitizers (SECONDS=60 each, SEED=0)
	PATH="$(abspath $(BIN)):$$PATH" kernels/sanitize.sh fuzz $(SECONDS) $(SEED)

cluster: $(ready)  ## malformed frames at owners' fronts, then the campaign's attacks on owners and trainings over them (TRIALS=48, CASES=100000)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.fronts --scheme tcp --cases $(CASES) --seed $(SEED)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.fronts --scheme grpc --cases $(CASES) --seed $(SEED)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults.campaign --attacks owners trainings --trials $(TRIALS) --seed $(SEED) $(ARGS)

clean:  ## remove what builds and tools left behind (distclean: the environment, too)
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis lightning_logs
	find lightning_gnnload tests examples scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean
	rm -rf .venv

# Stamps: each step runs once, and again when a file it was made from changes.

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' || { \
		echo "make: Python 3.10 to 3.13 is needed, but '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo 'not found')." \
			"Name another one: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# torch goes first and alone, so that nothing resolved later replaces the build that pip is configured to find.
$(VENV)/.torch: constraints.txt $(VENV)/.created
	$(PIP) torch
	$(PIP) scikit-build-core nanobind cmake ninja
	@touch $@

# Editable: changed Python files need nothing, changed kernels are compiled again. Without build isolation, so
# that the tools above serve and CMake's build folder is kept from one build to the next.
$(VENV)/.ready: pyproject.toml constraints.txt kernels/CMakeLists.txt $(filter-out kernels/fuzz/%,$(kernel_sources)) $(VENV)/.torch
	$(PIP) --no-build-isolation --editable '.[test,dgl,pyg,ogb,partition,tables,flight,ray]'
	@touch $@

$(VENV)/.ready-lint: $(VENV)/.ready
	$(PIP) --no-build-isolation --editable '.[lint,cuda-check]'
	@touch $@

# Another Lightning in front of all that is installed; what lies behind it comes last, so that pip leaves that alone.
build/lightning-$(RELEASE)/.ready: $(ready)
	$(BIN)/python -m venv --clear --without-pip $(@D)
	$(BIN)/python -m pip --disable-pip-version-check --python $(@D)/bin/python install --quiet --no-deps \
		pytorch-lightning==$(RELEASE) lightning==$(RELEASE)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		>"$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/behind.pth"
	@touch $@

# The site is made from the sources alone: neither torch nor compiled kernels are needed.
$(VENV)/.ready-docs: pyproject.toml constraints.txt $(VENV)/.created
	$(PIP) $(docs_packages)
	@touch $@
