# make setup, make crawl, make test: the other targets are explained in docs/ and CONTRIBUTING.md.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.synced
SPARK_STAMP := $(VENV)/.synced-spark
KERBEROS_STAMP := $(VENV)/.synced-kerberos
NATIVE := crawl_lib/parse/native
SCANNER := $(NATIVE)/liblinks.so.1
BENCH_VENV := .venv-bench
BENCH_STAMP := $(BENCH_VENV)/.synced
PYWB_VENV := .venv-pywb
PYWB_STAMP := $(PYWB_VENV)/.synced
export PYTHONPATH := plugins
# Where it is set, as in images of containers, each process compiles all of Airflow and Krake again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup setup-spark setup-kerberos setup-bench setup-pywb crawl ui cluster cluster-crawl test torture test-cluster check bench compose-env lock clean

setup: $(STAMP) $(SCANNER)

$(STAMP): requirements.lock requirements.build.lock pyproject.toml
	@echo 'Setting up the environment in $(VENV) (once, about a minute) ...'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.build.lock
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes --no-build-isolation requirements.build.lock requirements.lock $(if $(wildcard $(SPARK_STAMP)),requirements.spark.lock) $(if $(wildcard $(KERBEROS_STAMP)),requirements.kerberos.lock)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	touch $@

# The scanner of links, in C. Where no compiler works, one is downloaded for it.
$(SCANNER): $(wildcard $(NATIVE)/*.c $(NATIVE)/*.h) $(NATIVE)/compile.py requirements.compiler.lock | $(STAMP)
	$(BIN)/python $(NATIVE)/compile.py requirements.compiler.lock

# What `batch.engine: spark` needs besides Java 17: half a GB. Once installed, `make setup` keeps it.
setup-spark: $(SPARK_STAMP)

$(SPARK_STAMP): $(STAMP) requirements.spark.lock
	@echo 'Adding PySpark to $(VENV) (once, about half a minute) ...'
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --require-hashes --no-build-isolation --requirement requirements.spark.lock
	touch $@

# What `dfs.security: kerberos` needs; compiled, so with gcc, Python's headers and libkrb5-dev. `make setup` keeps it.
setup-kerberos: $(KERBEROS_STAMP)

$(KERBEROS_STAMP): $(STAMP) requirements.kerberos.lock
	@echo 'Adding GSSAPI to $(VENV) (once, about a minute) ...'
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --require-hashes --no-build-isolation --requirement requirements.kerberos.lock
	touch $@

crawl: setup
	@$(BIN)/python -m krake_airflow crawl $(if $(CONFIG),--config "$(CONFIG)") $(if $(SEEDS),--seeds "$(SEEDS)") $(if $(ITERATIONS),--iterations "$(ITERATIONS)")

ui: setup
	@exec $(BIN)/python -m krake_airflow ui $(if $(CONFIG),--config "$(CONFIG)")

# Many machines as processes of this one, with their data in .cluster/; needs Java 17, mvn, mariadb-server, postgresql.
cluster: setup
	@exec $(BIN)/python -m tests.cluster.run $(if $(CONFIG),--config "$(CONFIG)")

cluster-crawl: setup
	@exec $(BIN)/python -m tests.cluster.run crawl $(if $(CONFIG),--config "$(CONFIG)") $(if $(SEEDS),--seeds "$(SEEDS)") $(if $(ITERATIONS),--iterations "$(ITERATIONS)")

# Kills N processes, and compares; SEED chooses what is killed when. POWER=1: each kill is a loss of power.
# OPERATORS=N: instead, N crawls whose operators use all commands in any order.
torture: setup
	$(BIN)/python -m tests.torture$(if $(OPERATORS),.operators $(OPERATORS), $(or $(N),200)) $(if $(SEED),--seed $(SEED)) $(if $(OPERATORS),,$(if $(POWER),--power) --report docs/reliability.md)

# Four processes on two cores, since many tests mostly wait; tests/conftest.py says which files are the longest.
test: setup setup-pywb
	$(BIN)/python -m pytest $(or $(PYTEST_ARGS),--numprocesses 4 --dist loadfile --no-loadscope-reorder)

# On a real HDFS, which Maven brings; CONTRIBUTING.md names the packages that this needs. Four processes on two cores,
# since servers take their time; tests/cluster/conftest.py says in which order.
test-cluster: setup setup-spark setup-kerberos
	$(BIN)/python -m pytest tests/cluster -o addopts="-ra --strict-markers --strict-config --allow-hosts=127.0.0.0/8,::1 --allow-unix-socket" $(or $(PYTEST_ARGS),--numprocesses 4 --dist loadfile --no-loadscope-reorder)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Passwords for docker-compose.yml; an existing .env is kept.
compose-env:
	@$(PYTHON) plugins/krake_airflow/compose_env.py .env

# PARTS: some of them only. REPORT: a text whose table of figures is replaced by this run's. AGAINST: with PARTS=pairs,
# the commit that crawls in turn with this checkout.
bench: setup setup-bench
	$(BIN)/python -m benchmarks $(PARTS) $(if $(AGAINST),--against $(AGAINST)) $(if $(REPORT),--report $(REPORT))

# Scrapy, with which `make bench` compares Krake: in its own environment, since its dependencies must not change ours.
setup-bench: $(BENCH_STAMP)

$(BENCH_STAMP): requirements.bench.lock | $(STAMP)
	@echo 'Setting up Scrapy in $(BENCH_VENV) (once, some seconds) ...'
	test -x $(BENCH_VENV)/bin/python || $(PYTHON) -m venv --without-pip $(BENCH_VENV)
	$(BIN)/uv pip sync --quiet --compile-bytecode --python $(BENCH_VENV)/bin/python --require-hashes --only-binary :all: requirements.bench.lock
	touch $@

# pywb, which replays what a test crawled, and the library whose SURT keys ours must equal: with old dependencies.
setup-pywb: $(PYWB_STAMP)

$(PYWB_STAMP): requirements.build.lock requirements.pywb.lock | $(STAMP)
	@echo 'Setting up pywb in $(PYWB_VENV), for a test (once, some seconds) ...'
	test -x $(PYWB_VENV)/bin/python || $(PYTHON) -m venv --without-pip $(PYWB_VENV)
	$(BIN)/uv pip sync --quiet --python $(PYWB_VENV)/bin/python --require-hashes requirements.build.lock
	$(BIN)/uv pip sync --quiet --compile-bytecode --python $(PYWB_VENV)/bin/python --require-hashes --no-build-isolation requirements.build.lock requirements.pywb.lock
	touch $@

lock: setup
	$(BIN)/uv pip compile requirements.build.in --upgrade --generate-hashes --no-emit-index-url --python-version 3.11 --no-header --quiet --output-file requirements.build.lock
	$(BIN)/uv pip compile requirements.compiler.in --upgrade --generate-hashes --no-emit-index-url --python-version 3.11 --no-header --no-annotate --quiet --output-file requirements.compiler.lock
	$(BIN)/uv pip compile requirements.bench.in --upgrade --generate-hashes --no-emit-index-url --python-version 3.11 --no-header --no-annotate --quiet --output-file requirements.bench.lock
	$(BIN)/uv pip compile requirements.pywb.in --upgrade --generate-hashes --no-emit-index-url --python-version 3.11 --no-header --no-annotate --quiet --output-file requirements.pywb.lock
	$(BIN)/uv pip compile pyproject.toml --extra cluster --extra dev --overrides requirements.overrides --upgrade --generate-hashes --no-emit-index-url --python-version 3.11 --no-header --quiet --output-file requirements.lock
	$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['spark'])" | $(BIN)/uv pip compile - --constraint requirements.lock --upgrade --generate-hashes --no-emit-index-url --python-version 3.11 --no-header --no-annotate --quiet --output-file requirements.spark.lock
	$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['kerberos'])" | $(BIN)/uv pip compile - --constraint requirements.lock --upgrade --generate-hashes --no-emit-index-url --python-version 3.11 --no-header --no-annotate --quiet --output-file requirements.kerberos.lock

# Never touches data/: a crawl's results are deleted by hand.
clean:
	rm -rf $(VENV) $(BENCH_VENV) $(PYWB_VENV) $(SCANNER) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .airflow
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
