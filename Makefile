# Everything starts here; each target does its own set-up. `make` alone lists them.

PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null && echo $$p && break; done)
UV_VERSION := 0.13.9
VENV := .venv
# Where the environment forbids compiled modules, every one of some hundred programs would compile them again.
unexport PYTHONDONTWRITEBYTECODE
RUN := $(VENV)/bin/python
# One name for every way to pass pytest more: make test ARGS="-k zone -x"
ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
ifndef AT_ONCE
.NOTPARALLEL:
endif
MAKEFLAGS += --no-print-directory

# Which folders hold code; a folder that does not exist is none.
CODE := $(wildcard benchmarks dags demo examples open_mirroring plugins spark_jobs testing tests)

##@ Run

# A Kafka broker is part of one of the demo's sources only.
DEMO_JARS = $(if $(filter qlik-kafka,$(SOURCE)),jars-broker)
DEMO_SOURCE = $(if $(SOURCE),--source $(SOURCE))

.PHONY: demo
demo: setup $(DEMO_JARS) ## a shop's changes, mirrored and proved equal, a minute; SOURCE=ces|qlik-kafka|qlik-change-table
	$(RUN) -m demo.run $(DEMO_SOURCE)

.PHONY: ui
ui: setup $(DEMO_JARS) ## the demo, left running with Airflow's pages to look at; SOURCE=… likewise
	$(RUN) -m demo.run --keep $(DEMO_SOURCE)

# Compose v2 where it is, else v1.
COMPOSE = $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)

.PHONY: up
up: .env ## the development stack: Kafka, Airflow, Spark, PostgreSQL, emulator, a shop that trades; needs Docker
	@$(PYTHON) -m tests.compose.stack up $(COMPOSE)

.PHONY: down
down: ## stop the development stack; ARGS=--volumes removes its data, too
	$(COMPOSE) down --remove-orphans $(ARGS)

##@ Test

.PHONY: test
test: prerequisites $(VENV)/.installed ## lint, types and every test that does not take minutes: what CI runs (about 13 minutes)
	@$(MAKE) --jobs=2 AT_ONCE=yes lint fetched
	@$(MAKE) test-fast

.PHONY: fetched
fetched: ## jars and servers that the tests need, and classes for quick starts: next to lint, on another processor
	@$(MAKE) AT_ONCE= jars jars-broker
	@$(AZURITE)
	@$(RUN) -m tests.quick_java

# Whoever cannot reach the npm registry tests all else.
AZURITE = tests/azurite/fetch $(RUN) || echo "azurite: the tests of object storage are skipped"

.PHONY: test-fast
test-fast: fetched ## the tests alone; ARGS="..." goes to pytest
	$(RUN) -m pytest -n 2 -m "not long" $(ARGS)

# Folders that need neither Java nor a server. What in them starts Spark, Airflow, Kafka or PostgreSQL after all is
# marked by the fixture it asks for.
UNIT = tests/unit

.PHONY: test-unit
test-unit: $(VENV)/.installed ## the inner loop: no Spark, Airflow, Kafka or PostgreSQL, no Java (under 2 minutes)
	$(RUN) -m pytest -n 2 -m "not (long or spark or airflow or kafka or postgres or storage or browser)" $(UNIT) $(ARGS)

.PHONY: test-long
test-long: setup jars-broker jars-yarn ## the tests that take minutes
	@$(AZURITE)
	$(RUN) -m pytest -m long $(ARGS)

.PHONY: rules
rules: ## the rules of docs/rules/ with the tests that name each; fails on a rule without one
	@.ci/prerequisites "$(PYTHON)" lint
	@$(PYTHON) -m tests.rules

.PHONY: lint
lint: $(VENV)/.installed ## ruff (style, imports, format), mypy (strict), and the words of messages and documents
	@echo "lint: ruff check, ruff format, mypy, words"
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check --quiet . || { echo "lint: not formatted; run: make format"; exit 1; }
	@$(VENV)/bin/mypy
	@$(RUN) .ci/words.py

.PHONY: format
format: $(VENV)/.installed ## fix what ruff can fix
	$(VENV)/bin/ruff check --fix-only --quiet .
	$(VENV)/bin/ruff format .

.PHONY: coverage
coverage: setup jars-broker ## the tests of test-fast with the lines they reach; pages in build/coverage/html; ARGS=tests/unit
	@mkdir -p build/coverage
	$(RUN) -m pytest -n 2 -m "not long" --cov --cov-report=term --cov-report=html $(ARGS)

.PHONY: test-compose
test-compose: .env jars jars-broker azurite ## the development stack from nothing, its DAGs through Airflow's REST API, tables equal (15 minutes)
	@$(PYTHON) -m tests.compose.stack prove $(COMPOSE)

##@ Measure

# Sizes and rounds of all pairs: make bench ROWS=500000 ROUNDS=3
ROUNDS ?= 5
ROWS ?= 4000000
PROVE_ROWS ?= 8000000
EVENTS ?= 300000
CHANGES ?= 1000000
TURNS = --rounds $(ROUNDS) $(ARGS)

.PHONY: bench
bench: ## all pairs below in turns, which write benchmarks/RESULTS.md (about 40 minutes)
	@$(MAKE) bench-load bench-prove bench-publish bench-tick bench-small
	@$(MAKE) bench-publish ARGS="--tables 500"
	@for source in ces-files ces-kafka ces-capture qlik-kafka-json qlik-kafka-avro qlik-files qlik-jdbc; do \
		$(MAKE) bench-extract SOURCE=$$source || exit 1; done

.PHONY: bench-check
bench-check: ## the same pairs, nothing written: fails where a ratio is 10 % below the recorded one; ROUNDS=3 makes it quicker
	@BENCH_CHECK=1 $(MAKE) bench

.PHONY: bench-load
bench-load: setup build/others-environment/.installed ## an initial load from PostgreSQL next to ADBC, connectorx and dlt that write Parquet, and next to COPY; ROWS=4000000
	$(RUN) benchmarks/loads.py --rows $(ROWS) $(TURNS)

.PHONY: bench-prove
bench-prove: setup build/others-environment/.installed ## a proof of a table in PostgreSQL next to reladiff, and to DuckDB that joins both sides; PROVE_ROWS=8000000
	$(RUN) benchmarks/prove.py --rows $(PROVE_ROWS) $(TURNS)

.PHONY: bench-tick
bench-tick: setup build/others-environment/.installed ## change events into the landing zone next to thirty lines of pandas; EVENTS=300000
	$(RUN) benchmarks/tick.py --events $(EVENTS) $(TURNS)

.PHONY: bench-extract
bench-extract: setup $(if $(findstring kafka,$(SOURCE)),jars-broker) ## a source into the change log next to plain readers; SOURCE=ces-files and others, EVENTS=300000
	$(RUN) benchmarks/extract.py $(or $(SOURCE),ces-files) --events $(EVENTS) $(TURNS)

.PHONY: bench-publish
bench-publish: setup ## changes into the landing zone next to DuckDB; CHANGES=1000000; STORE=onelake next to the Azure SDK
	$(RUN) $(if $(filter onelake,$(STORE)),benchmarks/publish_onelake.py $(ARGS),benchmarks/publish.py --changes $(CHANGES) $(TURNS))

.PHONY: bench-tables
bench-tables: setup ## check, status and the parse of the DAGs with 1,000 tables next to 10; ARGS="--tables 500"
	$(RUN) benchmarks/many_tables.py $(ARGS)

.PHONY: bench-growth
bench-growth: setup ## how costs grow: 1 to 100 million rows, thousands of batches and of tables; writes benchmarks/RESULTS.md
	$(RUN) benchmarks/growth.py $(ARGS)

.PHONY: bench-small
bench-small: setup ## seconds of a tick over 100 events, one with nothing new, and status; writes benchmarks/RESULTS.md
	$(RUN) benchmarks/small_runs.py $(TURNS)

.PHONY: bench-airflow
bench-airflow: setup ## seconds of the demo's replicate runs in Airflow, with changes and without; writes benchmarks/RESULTS.md
	$(RUN) benchmarks/airflow_runs.py $(ARGS)

.PHONY: bench-faults
bench-faults: setup ## ticks over a wire to OneLake that fails at random, jobs killed now and then; MINUTES=30 SEED=1
	$(RUN) benchmarks/faults.py --minutes $(or $(MINUTES),30) --seed $(or $(SEED),1)

##@ Maintain

.PHONY: schema
schema: $(VENV)/.installed ## write docs/mirror.schema.json, the JSON Schema of mirrors/*.yaml
	@mkdir -p build
	$(VENV)/bin/open-mirroring schema > build/mirror.schema.json.new
	mv build/mirror.schema.json.new docs/mirror.schema.json

.PHONY: types
types: $(VENV)/.installed ## write docs/types.md, the table of all types, from the code that maps them
	$(RUN) -m tests.books.types > docs/types.md

.PHONY: commands
commands: $(VENV)/.installed ## write docs/reference/ and the runbook from the code
	@mkdir -p build
	$(RUN) -m tests.books.commands > build/commands.md.new
	mv build/commands.md.new docs/reference/commands.md
	$(RUN) -m tests.books.settings > build/settings.md.new
	mv build/settings.md.new docs/reference/settings.md
	$(RUN) -m tests.books.metrics > build/metrics.md.new
	mv build/metrics.md.new docs/reference/metrics.md
	$(RUN) plugins/open_mirroring_airflow/dag_docs.py > build/dags.md.new
	mv build/dags.md.new docs/reference/dags.md
	$(RUN) -m tests.books.codes

# The site has an environment of its own: no test and no job needs it.
.PHONY: docs
docs: build/docs-environment/.installed ## build the site of documents into build/site, strictly
	build/docs-environment/bin/mkdocs build --strict --quiet

# Tools that no test and no job needs have environments of their own: so a list of packages names none of theirs.
build/docs-environment/.installed: docs/requirements.txt
build/sbom-environment/.installed: deploy/sbom-requirements.lock
build/others-environment/.installed: benchmarks/other-tools.txt
build/%-environment/.installed:
	@.ci/prerequisites "$(PYTHON)" lint
	@mkdir -p build && $(PYTHON) -m venv $(@D)
	@$(@D)/bin/pip install --quiet -r $<
	@touch $@

.PHONY: wheel
wheel: $(VENV)/.installed uv ## build/dist/*.whl, the product and what it is tested with, built by the locked setuptools
	@rm -rf build/lib build/bdist.* testing/build # what an earlier build left would be packed, too
	$(UV) build --quiet --wheel --all-packages --no-build-isolation --python $(RUN) --out-dir build/dist

.PHONY: sbom
sbom: $(VENV)/.installed build/sbom-environment/.installed ## write build/sbom.json, all packages of the environment with versions and licences (CycloneDX)
	build/sbom-environment/bin/cyclonedx-py environment $(RUN) --output-reproducible --output-file build/sbom.json

.PHONY: lock
lock: uv ## resolve all versions again into requirements.lock (hashes, no addresses)
	$(UV) lock --upgrade
	$(UV) export --format requirements-txt --all-groups --no-emit-workspace --no-emit-index-url --no-header \
		--no-annotate --output-file requirements.lock >/dev/null

.PHONY: jars-pin
jars-pin: $(VENV)/.installed ## fetch what the ivy.xml files in jars/ name and pin the sums; after moving a version there
	@jars/fetch $(RUN) --pin
	@jars/fetch $(RUN) broker --pin
	@jars/fetch $(RUN) yarn --pin

.PHONY: clean
clean: ## remove everything that was made here: environment, jars, caches, build/ with the demo's data
	rm -rf $(VENV) .cache build .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info testing/*.egg-info testing/build jars/*.jar jars/*/*.jar
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

##@ Set up (the others do it by themselves)

.PHONY: setup
setup: prerequisites $(VENV)/.installed jars ## environment and jars; quick when there is nothing to do

.PHONY: prerequisites
prerequisites: ## look for Python and Java, and say how to get what is missing
	@.ci/prerequisites "$(PYTHON)"

# The environment is exactly the lock, with the project's two distributions as editable installations on top of it.
$(VENV)/.installed: requirements.lock pyproject.toml testing/pyproject.toml
	@.ci/prerequisites "$(PYTHON)" lint
	@$(MAKE) uv
	@echo "environment: $(VENV) with $(PYTHON), from requirements.lock (minutes the first time: 2 GB)"
	@test -x $(RUN) || $(UV) venv --quiet --python "$(PYTHON)" $(VENV)
	@$(UV) pip sync --quiet --compile-bytecode --python $(RUN) --require-hashes requirements.lock
	@$(UV) pip install --quiet --python $(RUN) --no-deps --no-build-isolation --editable . --editable testing
	@touch $@

.PHONY: jars
jars: prerequisites $(VENV)/.installed ## the pinned jars for Spark, by Java alone, checked against their sums
	@jars/fetch $(RUN)

.PHONY: jars-broker
jars-broker: prerequisites $(VENV)/.installed ## the same for the Kafka broker of tests and demo (44 MB, a minute)
	@jars/fetch $(RUN) broker

.PHONY: jars-yarn
jars-yarn: prerequisites $(VENV)/.installed ## the same for YARN, on which a long test runs drivers (67 MB)
	@jars/fetch $(RUN) yarn

.PHONY: azurite
azurite: $(VENV)/.installed ## the stand-in for Azure Blob Storage that tests start, by npm, which a wheel brings (a minute)
	@tests/azurite/fetch $(RUN)

# The project's own uv where there is none on the PATH.
UV = $(shell uv --version >/dev/null 2>&1 && echo uv || echo .cache/uv/bin/uv)

.PHONY: uv
uv:
	@$(UV) --version >/dev/null 2>&1 || { \
		echo "environment: fetching uv $(UV_VERSION) into .cache/uv"; \
		$(PYTHON) -m venv .cache/uv && .cache/uv/bin/python -m pip install --quiet "uv==$(UV_VERSION)"; }

# Secrets of the development stack in docker-compose.yaml: made once, never committed, never printed.
.env: ## secrets for docker-compose.yaml, made once
	@.ci/prerequisites "$(PYTHON)" lint
	@umask 077 && $(PYTHON) -c 'import base64, secrets; \
		print("AIRFLOW_FERNET_KEY=" + base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()); \
		print("STORAGE_KEY=" + base64.b64encode(secrets.token_bytes(32)).decode()); \
		[print(name + "=" + secrets.token_hex(24)) for name in \
		("POSTGRES_PASSWORD", "AIRFLOW_JWT_SECRET", "AIRFLOW_API_SECRET_KEY", "AIRFLOW_ADMIN_PASSWORD", \
		"EMULATOR_CLIENT_SECRET")]' > $@
	@echo ".env: secrets made; AIRFLOW_ADMIN_PASSWORD is the one to log in with"

.PHONY: help
help: ## this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[.a-zA-Z_-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
