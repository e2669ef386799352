# parsync-redis: everything a developer does, one word each. `make` lists them.

PYTHON  ?= python3.11
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.made
PYTEST  := $(BIN)/python -m pytest
# Processes at a time: of small tests, which compute; of those with a stack of processes, which mostly wait.
JOBS    ?= 2
STACKS  ?= 3
ARGS    ?=
# With ARGS, one of the two runs may have nothing to do (pytest's exit code 5).
none_is_fine = $(if $(ARGS),|| [ $$? = 5 ])

# The venv's programs come first, so that what a test starts by name (celery, parsync) is this checkout's.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# What Python has compiled is kept in the venv, also where the environment forbids it: a worker then starts in half the time.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache

.DEFAULT_GOAL := help
.PHONY: help demo test lint unit reproduce bench bench-celery chaos chaos-many chaos-mutants chaos-throughput soak fuzz compose-test wheel lock clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "  make %-14s %s\n", $$1, $$2}'

demo: $(STAMP) ## a server, 3 schedulers and 4 Celery workers read the standard library (ARGS="--limit 200")
	@mkdir -p build
	@$(BIN)/parsync demo --out build/demo.json $(ARGS)

test: lint ## lint, then every test: the small ones, then those that start stacks of processes (ARGS="-k fence")
	$(PYTEST) -n $(JOBS) -m "not serial" $(ARGS) $(none_is_fine)
	$(PYTEST) -n $(STACKS) --dist loadfile -m serial $(ARGS) $(none_is_fine)

unit: $(STAMP) ## the fast tests only, without a server
	$(PYTEST) -q tests/unit $(ARGS)

lint: $(STAMP) ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP) ## every bench, about 20 minutes: tables and plots in docs/performance.md (ARGS="--rate 4000")
	@$(BIN)/parsync bench report $(ARGS)

bench-celery: $(STAMP) ## no-op tasks through 4 solo workers: plain Celery, then parsync, and the ratio
	@$(BIN)/parsync bench celery $(ARGS)

chaos: $(STAMP) ## a stack of real processes under random faults, and its history checked (SECONDS=300 SEED=1)
	@$(BIN)/python -m tests.chaos.real run --seconds $(or $(SECONDS),300) --seed $(or $(SEED),1) $(ARGS)

EXPERIMENTS := strategies statesync conflicts staleness extra-slots omega

reproduce: $(STAMP) ## the paper's experiments in virtual time, and docs/reproduction.md (TRACE=batch_task.csv.gz)
	@rm -rf build/reproduction
	@for name in $(EXPERIMENTS); do \
	  $(BIN)/parsync simulate $$name --scale 0.1 --out build/reproduction/$$name $(ARGS) || exit; \
	done
	@if [ -n "$(TRACE)" ]; then $(BIN)/parsync simulate trace $(TRACE) --scale 0.1 --out build/reproduction/trace $(ARGS); fi
	@$(BIN)/parsync simulate report build/reproduction docs/reproduction.md

chaos-many: $(STAMP) ## N seeded schedules of faults against a real server, from SEED on (N=1000 SEED=1)
	@$(BIN)/python -m tests.chaos many -n $(or $(N),1000) --seed $(or $(SEED),1) $(ARGS)

chaos-mutants: $(STAMP) ## plants bugs in scripts and functions and shows that each is found (N=2000 SEED=1)
	@$(BIN)/python -m tests.chaos mutants -n $(or $(N),2000) --seed $(or $(SEED),1) $(ARGS)

chaos-throughput: $(STAMP) ## tasks/s with a worker and a scheduler killed every 10 s / undisturbed; how soon tasks move
	@$(BIN)/python -m tests.chaos.real throughput --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1) $(ARGS)

soak: $(STAMP) ## memory of all processes at 70 % load, and how much it grew after the first third (MINUTES=20)
	@$(BIN)/python -m tests.chaos.real soak --minutes $(or $(MINUTES),20) --seed $(or $(SEED),1) $(ARGS)

fuzz: $(STAMP) ## CASES of odd input to every public entry, from SEED (CASES=100000 SEED=1)
	@$(BIN)/python -m tests.fuzz --cases $(or $(CASES),100000) --seed $(or $(SEED),1) $(ARGS)

compose-test: $(STAMP) ## docker compose up with 3 schedulers and 4 workers, 200 tasks from the host, down
	@$(BIN)/python tests/compose/run.py $(ARGS)

wheel: $(STAMP) ## the wheel and the sdist, in dist/
	$(BIN)/python -m build --no-isolation --outdir dist

lock: ## requirements.lock (what runs) and requirements-dev.lock (and what tests) from pyproject.toml (ARGS=--upgrade)
	@$(find_python); $$python -m venv build/lock-venv
	@build/lock-venv/bin/pip install --quiet 'uv>=0.8,<1'
	@compile="build/lock-venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	    --no-emit-index-url --no-emit-find-links $(ARGS) pyproject.toml"; \
	  $$compile --output-file requirements.lock && \
	  $$compile --extra dev --constraint requirements.lock --output-file requirements-dev.lock
	@sed -i '1i # Made by `make lock`; do not edit.' requirements.lock requirements-dev.lock

clean: ## removes the environment, caches and everything built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Sets the shell variable `python` to an interpreter that can make the environment, or says plainly what is missing.
define find_python
for python in $(PYTHON) python3.11 python3; do \
	  if $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then break; fi; \
	  python=; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "parsync-redis needs Python 3.11 or newer with venv (Debian: apt-get install python3.11-venv);" \
	    "name yours with make PYTHON=/path/to/python" >&2; \
	  exit 2; \
	fi
endef

# The environment: made anew when the lock changes; our own package is put in again when pyproject.toml does.
# --no-build-isolation: what builds our package is in the lock as well.
$(VENV)/.locked: requirements-dev.lock
	@$(find_python); echo "making $(VENV) with $$($$python --version)"; $$python -m venv --clear $(VENV)
	@$(BIN)/pip install --quiet --no-compile --require-hashes --requirement requirements-dev.lock
	@touch $@

$(STAMP): $(VENV)/.locked pyproject.toml
	@$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@
