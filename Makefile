# make setup, make crawl, make test: the rest of the targets are explained in README.md and CONTRIBUTING.md.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.synced
export PYTHONPATH := plugins

.PHONY: setup crawl ui test test-cluster check bench compose-env lock clean

setup: $(STAMP)

$(STAMP): requirements.lock requirements.build.lock pyproject.toml
	@echo 'Setting up the environment in $(VENV) (once, about a minute) ...'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.build.lock
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes --no-build-isolation requirements.build.lock requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	touch $@

crawl: setup
	@$(BIN)/python -m krake_airflow.run $(if $(CONFIG),--config "$(CONFIG)") $(if $(SEEDS),--seeds "$(SEEDS)") $(if $(ITERATIONS),--iterations "$(ITERATIONS)")

ui: setup
	@exec $(BIN)/python -m krake_airflow.ui $(if $(CONFIG),--config "$(CONFIG)")

test: setup
	$(BIN)/python -m pytest $(or $(PYTEST_ARGS),--numprocesses 2 --dist loadfile)

# On a real HDFS, which Maven brings; needs Java 17 and mvn.
test-cluster: setup
	$(BIN)/python -m pytest tests/cluster -o addopts="-ra --strict-markers --strict-config --allow-hosts=127.0.0.0/8,::1 --allow-unix-socket" $(PYTEST_ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Passwords for docker-compose.yml; an .env that stands is kept.
compose-env:
	@$(PYTHON) plugins/krake_airflow/compose_env.py .env

bench: setup
	$(BIN)/python -m benchmarks

lock: setup
	$(BIN)/uv pip compile requirements.build.in --upgrade --generate-hashes --no-emit-index-url --python-version 3.11 --no-header --quiet --output-file requirements.build.lock
	$(BIN)/uv pip compile pyproject.toml --extra cluster --extra dev --overrides requirements.overrides --upgrade --generate-hashes --no-emit-index-url --python-version 3.11 --no-header --quiet --output-file requirements.lock

# Never touches data/: a crawl's results are deleted by hand.
clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .airflow
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
