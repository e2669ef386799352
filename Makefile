# parsync-redis: a target for everything that a developer does. `make` lists them.

PYTHON  ?= python3.11
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.made
PYTEST  := $(BIN)/python -m pytest
# Parallel pytest workers. Stacks of processes wait more than they compute, so two cores take six.
JOBS    ?= 6
ARGS    ?=

# The venv comes first on the PATH, so that tests start this checkout's celery and parsync.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Keep compiled files in the venv, even if the environment forbids it: workers start in half the time.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache

.DEFAULT_GOAL := help
.PHONY: help demo models test test-all test-rest lint luacheck unit reproduce replay bench bench-celery chaos chaos-many chaos-failover chaos-moves chaos-mutants chaos-throughput chaos-rate soak fuzz newer-pythons celery-suite cluster-test compose-test site record wheel lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "  make %-14s %s\n", $$1, $$2}'

demo: $(STAMP) ## run a server, 3 schedulers and 4 Celery workers that measure the standard library (ARGS="--limit 200")
	@mkdir -p build
	@$(BIN)/python -m examples.demo --out build/demo.json $(ARGS)

models: $(STAMP) ## run 4 Celery workers that load ten models on demand, with and without warm (ARGS="--requests 100")
	@$(BIN)/python -m examples.models $(ARGS)

test: lint ## lint, then run all tests without a stack of processes, and one story of each behaviour on a stack: 5 minutes
	$(PYTEST) -n $(JOBS) --dist loadgroup -m quick $(ARGS)

test-all: lint ## lint, then run every test, those with stacks of processes first (ARGS="-k isolation")
	$(PYTEST) -n $(JOBS) --dist loadgroup $(ARGS)

test-rest: $(STAMP) ## run what `make test` leaves to `make test-all`
	$(PYTEST) -n $(JOBS) --dist loadgroup -m "not quick" $(ARGS)

unit: $(STAMP) ## run the fast tests only, without a server: about 15 seconds
	$(PYTEST) -q -n $(JOBS) tests/unit tests/docs/rules $(ARGS)

LUACHECK := $(or $(shell command -v luacheck),$(wildcard $(CURDIR)/build/debian-luacheck/bin/luacheck))

lint: $(STAMP) ## run ruff, mypy --strict, and luacheck if it is there
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(MAKE) --no-print-directory luacheck

luacheck: $(STAMP) ## run luacheck on the scripts as they are sent (.ci/luacheck gets it)
	@if [ -n "$(LUACHECK)" ]; then $(BIN)/python -m tests.kit.lua_lint $(LUACHECK); \
	  else echo "luacheck is missing, lua/ was not checked: run .ci/luacheck, or apt-get install lua-check"; fi

bench: $(STAMP) ## run every bench, about 20 minutes, and write docs/performance.md (ARGS="--rate 4000")
	@$(BIN)/parsync bench report $(ARGS)

bench-celery: $(STAMP) ## compare with plain Celery: no-op tasks through 4 solo workers
	@$(BIN)/parsync bench celery $(ARGS)

chaos: $(STAMP) ## run real processes under random faults and check their history (SECONDS=300 SEED=1 SERVERS=one|cluster|lagging)
	@$(BIN)/python -m tests.chaos.real run --seconds $(or $(SECONDS),300) --seed $(or $(SEED),1) --servers $(or $(SERVERS),one) $(ARGS)

EXPERIMENTS := strategies statesync conflicts staleness extra-slots omega fairness

reproduce: $(STAMP) ## run the paper's experiments in virtual time and write docs/reproduction.md (TRACE=batch_task.csv.gz THROUGHPUTS=simulation_throughputs.json.gz)
	@rm -rf build/reproduction
	@for name in $(EXPERIMENTS); do \
	  $(BIN)/parsync simulate $$name --scale 0.1 --out build/reproduction/$$name $(ARGS) || exit; \
	done
	@if [ -n "$(TRACE)" ]; then \
	  $(BIN)/parsync simulate trace $(TRACE) --scale 0.1 --out build/reproduction/trace $(ARGS) && \
	  $(BIN)/parsync simulate jobs $(TRACE) --load 0.95 --repeat 3 --out build/reproduction/jobs $(ARGS); fi
	@$(BIN)/parsync simulate unequal $(if $(THROUGHPUTS),--trace $(THROUGHPUTS)) --out build/reproduction/unequal $(ARGS)
	@$(BIN)/parsync simulate report build/reproduction docs/reproduction.md

replay: $(STAMP) ## replay a trace of GPU nodes and pods and write docs/replay-gpu.md (TRACE=DIR)
	@$(if $(TRACE),,$(error which trace? make replay TRACE=DIR))rm -rf build/replay
	@$(BIN)/parsync replay gpu $(TRACE) --out build/replay/virtual $(ARGS)
	@$(BIN)/parsync replay gpu $(TRACE) --live --out build/replay/live $(ARGS)
	@$(BIN)/parsync replay gpu $(TRACE) --ends --speedup 10000 --out build/replay/ends $(ARGS)
	@$(BIN)/parsync replay report build/replay docs/replay-gpu.md

chaos-many: $(STAMP) ## play N seeded schedules of faults against a real server, from SEED on (N=1000 SEED=1)
	@$(BIN)/python -m tests.chaos many -n $(or $(N),1000) --seed $(or $(SEED),1) $(ARGS)

chaos-failover: $(STAMP) ## have KILLS primaries of a Redis Cluster go away under load (KILLS=8 SEED=1)
	@$(BIN)/python -m tests.chaos.real failover --kills $(or $(KILLS),8) --seed $(or $(SEED),1) $(ARGS)

chaos-moves: $(STAMP) ## move MOVES slots of a Redis Cluster under load (MOVES=40 SEED=1)
	@$(BIN)/python -m tests.chaos.real move-slots --moves $(or $(MOVES),40) --seed $(or $(SEED),1) $(ARGS)

chaos-mutants: $(STAMP) ## plant bugs in scripts and functions and show that chaos finds each (N=2000 SEED=1)
	@$(BIN)/python -m tests.chaos mutants -n $(or $(N),2000) --seed $(or $(SEED),1) $(ARGS)

chaos-throughput: $(STAMP) ## measure tasks/s with and without a worker and a scheduler killed every 10 s
	@$(BIN)/python -m tests.chaos.real throughput --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1) $(ARGS)

chaos-rate: $(STAMP) ## take tasks under a rate of 100 a minute as soon as it lets them start, and compare (MINUTES=10)
	@$(BIN)/python -m tests.chaos.real rate --minutes $(or $(MINUTES),10) $(ARGS)

soak: $(STAMP) ## measure the memory of all processes at 70 % load, and its growth (MINUTES=20)
	@$(BIN)/python -m tests.chaos.real soak --minutes $(or $(MINUTES),20) --seed $(or $(SEED),1) $(ARGS)

fuzz: $(STAMP) ## feed CASES of odd input to every public entry, from SEED on (CASES=100000 SEED=1)
	@$(BIN)/python -m tests.chaos.fuzz --cases $(or $(CASES),100000) --seed $(or $(SEED),1) $(ARGS)

newer-pythons: ## run all tests on Python 3.12 and 3.13, if they are there (FORM=short: as .ci/run does)
	@for version in 3.12 3.13; do .ci/newer-python $$version $(or $(FORM),full) $(ARGS) || [ $$? = 77 ] || exit 1; done

celery-suite: $(STAMP) ## run Celery's own integration suite with every task placed; differences must be explained: 10 minutes
	tests/parity/celery_suite/run $(ARGS)

cluster-test: $(STAMP) ## run the tests of whole processes on a Redis Cluster of 3 primaries and 3 replicas (ARGS="-k fleet")
	PARSYNC_TEST_CLUSTER=3 $(PYTEST) -n 4 --dist loadfile -m redis_cluster tests/system tests/docs $(ARGS)

compose-test: $(STAMP) ## run docker compose with 3 schedulers and 4 workers, and 200 tasks from the host (ARGS=--cluster, ARGS=--monitor)
	@$(BIN)/python -m tests.system.deploy.compose $(ARGS)

site: $(STAMP) ## build the documentation in build/site, strictly: a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs --quiet build --strict
	@echo build/site/index.html

record: $(STAMP) ## record the terminal session and the screenshots of docs/pictures again (needs chromedriver)
	@$(BIN)/python -m tests.kit.record $(ARGS)

wheel: $(STAMP) ## build the wheel and the sdist, and the wheel of parsync-lab, in dist/
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python -m build --no-isolation --wheel --outdir dist lab

lock: ## write requirements.lock, and those with the extras serve and dev (and of parsync-lab), from pyproject.toml (ARGS=--upgrade)
	@$(find_python); $$python -m venv build/lock-venv
	@build/lock-venv/bin/pip install --quiet 'uv>=0.8,<1'
	@compile="build/lock-venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	    --no-emit-index-url --no-emit-find-links --no-emit-package parsync-redis $(ARGS) pyproject.toml"; \
	  $$compile --output-file requirements.lock && \
	  $$compile --extra serve --constraint requirements.lock --output-file requirements-serve.lock && \
	  $$compile lab/pyproject.toml --extra dev --extra simulate --constraint requirements.lock --output-file requirements-dev.lock
	@sed -i '1i # Made by `make lock`; do not edit.' requirements.lock requirements-serve.lock requirements-dev.lock

clean: ## remove the environment, caches and everything built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Set the shell variable `python` to an interpreter that can make the environment, or say what is missing.
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

# The environment is made anew when the lock changes; our packages are installed again when a pyproject.toml changes.
# --no-build-isolation: the lock has the build backend as well.
$(VENV)/.locked: requirements-dev.lock
	@$(find_python); echo "making $(VENV) with $$($$python --version)"; $$python -m venv --clear $(VENV)
	@$(BIN)/pip install --quiet --no-compile --require-hashes --requirement requirements-dev.lock
	@touch $@

$(STAMP): $(VENV)/.locked pyproject.toml lab/pyproject.toml
	@$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable . --editable lab
	@touch $@
