# make setup, make crawl, make test: the other targets are explained in docs/ and CONTRIBUTING.md.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.synced
EXTRAS := spark kerberos browser
NATIVE := crawl_lib/parse/native
SCANNER := $(NATIVE)/liblinks.so.1
BENCH_VENV := .venv-bench
BENCH_STAMP := $(BENCH_VENV)/.synced
PYWB_VENV := .venv-pywb
PYWB_STAMP := $(PYWB_VENV)/.synced
export PYTHONPATH := plugins
# Where it is set, as in images of containers, each process compiles all of Airflow and Krake again.
unexport PYTHONDONTWRITEBYTECODE
# Krake has numpy do no linear algebra, and the threads for it would spin for 0.06 s of CPU in every process.
export OPENBLAS_NUM_THREADS := 1

# The variables that each target knows, PYTHON aside. Any other one, such as a slip in SEEDS, is refused before anything
# is done.
VARIABLES_crawl := CONFIG SEEDS ITERATIONS
VARIABLES_ui := CONFIG
VARIABLES_cluster := CONFIG DFS
VARIABLES_cluster-crawl := CONFIG SEEDS ITERATIONS DFS
VARIABLES_torture := N SEED POWER OPERATORS AIRFLOW DFS REQUISITES REALTIME CLUSTER
VARIABLES_test := PYTEST_ARGS
VARIABLES_test-cluster := PYTEST_ARGS
VARIABLES_test-compose := PYTEST_ARGS
VARIABLES_bench := PARTS AGAINST REPORT
ASKED := $(or $(MAKECMDGOALS),setup)
GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
KNOWN := $(foreach target,$(ASKED),$(VARIABLES_$(target))) PYTHON
$(if $(filter-out $(KNOWN),$(GIVEN)),$(error make $(ASKED) knows no variable $(filter-out $(KNOWN),$(GIVEN)), only $(strip $(KNOWN))))

HAS_PYTHON = import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != (3, 11))
# Runs what downloads packages: whatever it says is shown if it fails, but for a network that is not there.
DOWNLOAD = download() { "$$@" > $(VENV)/download.log 2>&1 || { \
	if grep -qE 'connection broken by|from versions: none|error sending request' $(VENV)/download.log; \
	then echo 'make: packages cannot be downloaded, since their index does not answer: see to the network, or to PIP_INDEX_URL, UV_INDEX_URL and HTTPS_PROXY (details: $(VENV)/download.log)'; \
	else cat $(VENV)/download.log; fi >&2; exit 1; }; }; download

.PHONY: setup setup-spark setup-kerberos setup-browser setup-bench setup-pywb crawl search realtime ui wheel cluster cluster-crawl test torture test-cluster test-compose check bench compose-env lock clean

setup: $(STAMP) $(SCANNER)

$(STAMP): requirements.lock requirements.build.lock pyproject.toml
	@echo 'Setting up the environment in $(VENV) (once, about a minute) ...'
	@$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) -c '$(HAS_PYTHON)' 2> /dev/null || { \
	echo 'make: Krake needs Python 3.11 with venv and pip, which $(if $(wildcard $(BIN)/python),$(VENV),$(or $(PYTHON),this machine)) is not: install it, delete $(VENV) if it is there, and run make setup PYTHON=/path/to/python3.11' >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(DOWNLOAD) $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.build.lock
	@$(DOWNLOAD) $(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes --no-build-isolation requirements.build.lock requirements.lock $(foreach extra,$(EXTRAS),$(if $(wildcard $(STAMP)-$(extra)),requirements.$(extra).lock))
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

# The scanner of links, in C. Where no compiler works, one is downloaded for it.
$(SCANNER): $(wildcard $(NATIVE)/*.c $(NATIVE)/*.h) $(NATIVE)/compile.py requirements.compiler.lock | $(STAMP)
	$(BIN)/python $(NATIVE)/compile.py requirements.compiler.lock

# What not all need; once installed, `make setup` keeps it. `spark`: for `batch.engine: spark`, besides Java 17, half a
# GB. `kerberos`: for `dfs.security: kerberos`; compiled, so with gcc, Python's headers and libkrb5-dev. `browser`: for
# a test that uses Airflow's pages, besides Debian's chromium.
setup-spark: $(STAMP)-spark
setup-kerberos: $(STAMP)-kerberos
setup-browser: $(STAMP)-browser

$(STAMP)-%: requirements.%.lock | $(STAMP)
	@echo 'Adding the extra $* to $(VENV) (once, up to a minute) ...'
	@$(DOWNLOAD) $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --require-hashes --no-build-isolation --requirement $<
	@touch $@

crawl: setup
	@$(BIN)/python -m krake_airflow crawl $(if $(CONFIG),--config "$(CONFIG)") $(if $(SEEDS),--seeds "$(SEEDS)") $(if $(ITERATIONS),--iterations "$(ITERATIONS)")

# The synthetic web again, then its index, and the search page until Ctrl-C.
search: setup
	@$(BIN)/python -m krake_airflow crawl --config config/demo.yml
	@$(BIN)/krake --config config/demo.yml index update
	@exec $(BIN)/krake --config config/demo.yml serve search

# The real-time service over the synthetic web, and a page to type a URL into, until Ctrl-C.
realtime: setup
	@exec $(BIN)/python -m demo realtime

ui: setup
	@exec $(BIN)/python -m krake_airflow ui $(if $(CONFIG),--config "$(CONFIG)")

# Krake as one file, dist/krake-*.whl, for an Airflow that you have: docs/airflow.md.
wheel: setup
	rm -rf build
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	rm -rf build

# Many machines as processes of this one, with their data in .cluster/; needs Java 17, mvn, mariadb-server, postgresql.
# DFS=s3: an object store in place of HDFS, with data in .cluster-s3/; needs Go 1.25 or newer in place of Java and mvn.
cluster: setup
	@exec $(BIN)/python -m tests.cluster.run $(if $(DFS),--dfs "$(DFS)") $(if $(CONFIG),--config "$(CONFIG)")

cluster-crawl: setup
	@exec $(BIN)/python -m tests.cluster.run crawl $(if $(DFS),--dfs "$(DFS)") $(if $(CONFIG),--config "$(CONFIG)") $(if $(SEEDS),--seeds "$(SEEDS)") $(if $(ITERATIONS),--iterations "$(ITERATIONS)")

# Kills N processes, and compares; SEED chooses what is killed when. POWER=1: each kill is a loss of power. DFS=s3:
# crawls lie in an object store (versitygw, which needs Go 1.25 or newer).
# OPERATORS=N: instead, N crawls whose operators use all commands in any order. AIRFLOW=N: instead, `make crawl` killed
# N times, and tasks and all of a running Airflow. REALTIME=N, CLUSTER=N: instead, a real-time service with one fetcher, or
# with three fetchers and two schedulers.
torture: setup
	$(if $(CLUSTER),$(BIN)/python -m tests.torture.cluster $(CLUSTER) $(if $(SEED),--seed $(SEED)) --report docs/torture.md,$(if $(REALTIME),$(BIN)/python -m tests.torture.live $(REALTIME) $(if $(SEED),--seed $(SEED)) --report docs/torture.md,$(if $(AIRFLOW),KILLS=$(AIRFLOW) $(BIN)/python -m pytest tests/torture/airflow_kills.py -v,$(BIN)/python -m tests.torture$(if $(OPERATORS),.operators $(OPERATORS), $(or $(N),200)) $(if $(SEED),--seed $(SEED)) $(if $(OPERATORS),,$(if $(POWER),--power) $(if $(REQUISITES),--requisites) $(if $(DFS),--dfs "$(DFS)",$(if $(REQUISITES),,--report docs/torture.md))))))

# Five processes on two cores, since many tests mostly wait; tests/sharing.py says how they share them. What they
# write is 4 GB at most, much of it synced: in memory, where there is plenty, they take a fifth less time.
test: setup setup-pywb
	@free_mb="$$(df --output=avail --block-size=1M /dev/shm 2> /dev/null | tail -1)"; \
	available_mb="$$(awk '/^MemAvailable/ {print int($$2 / 1024)}' /proc/meminfo 2> /dev/null)"; \
	if [ -z "$$TMPDIR" ] && [ "$${free_mb:-0}" -ge 8192 ] && [ "$${available_mb:-0}" -ge 16384 ]; then \
	export TMPDIR="$$(mktemp -d /dev/shm/krake-XXXXXX)"; trap 'rm -rf "$$TMPDIR"' EXIT; fi; \
	$(BIN)/python -m pytest $(or $(PYTEST_ARGS),--numprocesses 5 --dist loadfile --no-loadscope-reorder)

# On a real HDFS, which Maven brings; CONTRIBUTING.md names the packages that this needs. Three processes on two cores,
# since servers take their time; tests/cluster/conftest.py says in which order.
test-cluster: setup setup-pywb $(EXTRAS:%=setup-%)
	$(BIN)/python -m pytest -o testpaths="tests/cluster tests" -o addopts="-ra --strict-markers --strict-config --allow-hosts=127.0.0.0/8,::1 --allow-unix-socket --ignore=tests/compose -m slow" $(or $(PYTEST_ARGS),--numprocesses 3 --dist loadfile --no-loadscope-reorder)

# The services of docker-compose.yml, as containers. It needs root, Go 1.24 or newer, and Debian's docker.io,
# debootstrap, maven and Java 17. Images and Compose take some minutes the first time. Where something is missing, the
# closing summary names it.
test-compose: setup
	$(BIN)/python -m pytest -o testpaths=tests/compose -o addopts="-ra --strict-markers --strict-config --allow-hosts=127.0.0.0/8,::1 --allow-unix-socket" $(PYTEST_ARGS)

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

# pywb, which replays what a test crawled, wacz, which packs it, and the library whose SURT keys ours must equal.
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
	$(BIN)/uv pip compile pyproject.toml --extra cluster --extra hdfs --extra s3 --extra search --extra realtime --extra dev --overrides requirements.overrides --upgrade --generate-hashes --no-emit-index-url --python-version 3.11 --no-header --quiet --output-file requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra cluster --extra hdfs --extra s3 --extra search --extra realtime --overrides requirements.overrides --constraint requirements.lock --upgrade --generate-hashes --no-emit-index-url --python-version 3.11 --no-header --no-annotate --quiet --output-file requirements.image.lock
	for extra in $(EXTRAS); do $(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['$$extra'])" | $(BIN)/uv pip compile - --constraint requirements.lock --upgrade --generate-hashes --no-emit-index-url --python-version 3.11 --no-header --no-annotate --quiet --output-file requirements.$$extra.lock || exit; done

# Never touches data/: a crawl's results are deleted by hand.
clean:
	rm -rf $(VENV) $(BENCH_VENV) $(PYWB_VENV) $(SCANNER) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .airflow
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
