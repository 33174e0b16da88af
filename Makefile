# Two commands do everything on a fresh machine: `make demo` and `make test`. `make help` lists the rest.
.DEFAULT_GOAL := help
.PHONY: help setup system demo quick test nightly spark-classes durations check format docs pictures bench soak kills simulate matrix lock clean

VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
PROCESSORS := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
# One more than processors, for some tests wait; four at the most, for each may have a JVM.
WORKERS ?= $(shell n=$(PROCESSORS); echo $$((n < 3 ? n + 1 : 4)))
PYTEST = $(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
N ?= 100
LAUNCH ?= local

# Thousands of Pythons are started here. What they import is to be compiled once, not by each of them; and OpenBLAS, which
# comes with numpy, has its threads turn idly for a tenth of a second in each.
unexport PYTHONDONTWRITEBYTECODE
# Set-ups of several worktrees share uv's cache, and wait for each other: longer than its 5 minutes, on a slow machine.
$(VENV)/.ready: export UV_LOCK_TIMEOUT ?= 1200
quick test nightly kills simulate matrix: export OPENBLAS_NUM_THREADS = 1

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

setup: $(VENV)/.ready ## a virtual environment with the tested versions

$(VENV)/.ready: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: none was found on the PATH"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt uv
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --constraint constraints.txt --editable ".[dev]"
	@touch $@

system: ## installs what some tests use: PostgreSQL with wal2json, Chromium, bubblewrap (on Debian, as root)
	@.ci/system

demo: setup ## syncs a real source into Iceberg tables, twice, shows the tables, and pushes one to a destination
	@PATH="$(abspath $(BIN)):$$PATH" example_project/demo

# Its tests do not wait, and each worker takes a quarter of a minute to collect them.
quick: WORKERS = $(PROCESSORS)
quick: setup ## the fast tests that need no JVM, Docker, browser, package index or database
	$(PYTEST) --quick

test: setup system spark-classes ## what every change has to pass
	$(PYTEST) -m "not nightly" --junitxml build/tests.xml

nightly: setup system spark-classes ## what `make test` has one case of: crash matrices, long chains, every real connector
	$(PYTEST) -m nightly

spark-classes: # leaves Spark's classes to the JVMs of the tests
	@$(BIN)/airbyte-proto --home .pytest_cache/home query 'select 1' > /dev/null

durations: ## records how long each test took in the last `make test`: orders the files, and keeps `make quick` quick
	$(BIN)/python -m tests.support.durations build/tests.xml

check: setup ## format, lint, types, imports and tests: what a change has to pass
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) test

format: setup ## formats the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup ## the documentation as web pages, in build/site, with the picture of the rooms
	$(BIN)/python -m docs.rooms
	$(BIN)/python -m docs.deployments
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	$(BIN)/python docs/check_links.py
	@echo "build/site/index.html"

pictures: setup system ## takes the pictures of the documentation from the real UI and a real terminal
	AIRBYTE_PROTO_PICTURES=docs/pictures $(BIN)/pytest tests/browser
	$(BIN)/python docs/terminal.py

bench: setup ## our figures beside those of the peers, as ratios of CPU seconds
	$(BIN)/python -m bench
	$(BIN)/python -m bench.tables
	$(BIN)/python -m bench.pushes
	$(BIN)/python -m bench.pushes.syncmaven
	$(BIN)/python -m bench.transport
	$(BIN)/python -m bench.rapidbyte
	$(BIN)/python -m bench.scale.cluster
	$(BIN)/python -m bench.scale.many
	$(BIN)/python -m bench.scale.witness

soak: setup kills $(if $(filter docker,$(LAUNCH)),,matrix) ## random kills of real syncs, then the whole crash matrix on Iceberg and Delta (an hour and a half on two cores)

kills: setup ## N random kills of real syncs on Iceberg, after 20 N on folder tables; N / 5 of Dagster's run workers; N / 5 on a Connect server, N / 10 on Delta there; N on executors (processes), N / 5 on those of a cluster; 5 N of pushes, 2 N of relays, N of both by their commands. LAUNCH=docker: N of connectors in containers
ifeq ($(LAUNCH),docker)
	$(BIN)/python -m tests.soak --kills $(N) --tables folder --launch docker
else
	$(BIN)/python -m tests.soak --kills $$((20 * $(N))) --tables folder
	$(BIN)/python -m tests.soak --kills $(N)
	$(BIN)/python -m tests.soak --kills $$(($(N) / 5)) --through dagster
	$(BIN)/python -m tests.soak --kills $$(($(N) / 5)) --through connect
	$(BIN)/python -m tests.soak --kills $$(($(N) / 10)) --through connect --tables delta
	$(BIN)/python -m tests.soak --kills $(N) --tables folder --through executors
	$(BIN)/python -m tests.soak --kills $$(($(N) / 5)) --through executors
	$(BIN)/python -m tests.soak --kills $$((5 * $(N))) --tables folder --through push
	$(BIN)/python -m tests.soak --kills $$((2 * $(N))) --tables folder --through relay
	$(BIN)/python -m tests.soak --kills $$(($(N) / 2)) --tables folder --through push --by command
	$(BIN)/python -m tests.soak --kills $$(($(N) / 2)) --tables folder --through relay --by command
endif

simulate: setup ## N schedules of errors, deaths, pauses, and stores and tables that are set back, on simulated syncs, N / 10 on pushes and N / 10 on relays
	$(BIN)/python -m tests.simulation $(N)
	$(BIN)/python -m tests.simulation $$(($(N) / 10)) --through push
	$(BIN)/python -m tests.simulation $$(($(N) / 10)) --through relay

matrix: setup ## the crash matrix on Iceberg and Delta: every point, mode and scope, and again in the recovery
	$(BIN)/python -m tests.soak --kills 0 --matrix
	$(BIN)/python -m tests.soak --kills 0 --matrix --tables delta

lock: ## the versions that are tested, newly resolved
	$(BIN)/uv pip compile --quiet --universal --no-header --no-annotate --all-extras --upgrade pyproject.toml --output-file constraints.txt

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .grimp_cache .import_linter_cache .bench build
