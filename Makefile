# Every command a developer needs. All of them make their own environment in .venv first.
.DEFAULT_GOAL := help
.PHONY: help setup check pyright surface mypy ruff floors house format unit test lowest newest elsewhere demo shop bench \
	constraints clean

BIN := .venv/bin
PY := $(BIN)/python
READY := .venv/ready
# pyright would ask for its latest version at each start.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## make .venv with everything in it (needs Python 3.11 or later)

$(READY): pyproject.toml constraints.txt tools/setup.sh
	@sh tools/setup.sh dev
	@touch $@

check: $(READY)  ## format, lint, floors, types and the rules of the house, in under a minute
	@$(MAKE) --no-print-directory --keep-going --jobs=2 pyright surface mypy ruff floors house

pyright: $(READY)
	$(BIN)/pyright

surface: $(READY)
	$(PY) -m pytest -q tests/typing/test_surface.py

mypy: $(READY)
	$(BIN)/mypy

ruff: $(READY)
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet

floors: $(READY)
	$(BIN)/lint-imports --no-cache --no-logo

house: $(READY)
	$(PY) -m pytest -q tests/house

format: $(READY)  ## format the code and mend what ruff can mend
	$(BIN)/ruff format --quiet
	$(BIN)/ruff check --quiet --fix

unit: $(READY)  ## the quick tests, without a database server: make unit ARGS="-k retry"
	$(PY) -m pytest -q tests/unit tests/replay tests/house $(ARGS)

test: $(READY)  ## all tests, on SQLite and private PostgreSQL, MySQL and MariaDB servers: make test ARGS="-k claim"
	@$(PY) tools/postgres.py ensure
	@for server in mysql mariadb; do $(PY) -m tools.$$server ensure || test "$$CI" != true || exit 1; done
	@$(PY) -m tools.pgbouncer ensure
	$(PY) -m $(if $(filter true,$(CI)),tools.suite,pytest) -n 4 --dist worksteal $(ARGS)

# What leans on a dependency whose versions differ.
QUICK := tests/unit tests/replay
DJANGO := $(addprefix tests/integration/test_django_,$(addsuffix .py,admin clients migrations road settings steps testing transactions))
LEANING := $(DJANGO) $(addprefix tests/integration/test_,$(addsuffix .py,\
	alembic cli cli_schema events_django events_sqlalchemy fastapi flask litestar missing_extras pytest_plugin starlette \
	transactional_steps transactions)) $(addprefix tests/contract/test_,$(addsuffix .py,given_connections psycopg raw_pools))
TWO_DATABASES := -k "not mysql and not mariadb"

lowest: .lowest-venv/ready  ## the tests that lean on dependencies, with the lowest version of each, on SQLite and PostgreSQL
	@.lowest-venv/bin/python tools/postgres.py ensure
	.lowest-venv/bin/python -m pytest -q -n 4 --dist worksteal $(TWO_DATABASES) $(QUICK) $(LEANING) $(ARGS)

.lowest-venv/ready: pyproject.toml constraints-lowest.txt tools/setup.sh
	@PYTHON=$$(sh tools/python.sh 3.11) sh tools/setup.sh tests .lowest-venv constraints-lowest.txt
	@touch $@

newest: $(READY)  ## the quick tests and those of Django on another Python: make newest PYTHON=3.12
	@$(PY) tools/postgres.py ensure
	@python=$$(sh tools/newest.sh "$(PYTHON)") && set -x && \
	"$$python" -m pytest -q -n 4 --dist worksteal $(TWO_DATABASES) $(QUICK) $(DJANGO) $(ARGS)

elsewhere:  ## all tests on the Python and the servers of another Debian, as root: make elsewhere RELEASE=sid
	@sh tools/elsewhere.sh "$(RELEASE)"

demo: $(READY)  ## the shop example, killed in the middle of an order and started again; DB=postgresql, mysql or mariadb
	@$(if $(filter postgresql,$(DB)),$(PY) tools/postgres.py run -- )$(if $(filter mysql mariadb,$(DB)),$(PY) -m tools.$(DB) run -- )$(PY) -m examples.shop.demo $(DB:%=--database %)

shop: $(READY)  ## the shop example, left running for you to try
	@$(PY) -m examples.shop

bench: $(READY)  ## figures of outlast beside its peers, on private servers with fsync on
	@$(PY) tools/postgres.py ensure
	@for server in mysql mariadb; do $(PY) -m tools.$$server ensure || exit 1; done
	@$(PY) -m benchmarks.run $(ARGS)

constraints:  ## write constraints.txt anew from the latest versions, then make setup again
	@sh tools/constraints.sh

clean:  ## remove what the commands have made
	rm -rf .venv .lowest-venv .newest-venv .bench-venv .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist
