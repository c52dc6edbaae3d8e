# Krake on the official Airflow image. Every package comes from the lock, in an environment of its own: what runs here is
# what the tests ran, not what the image happens to bring.
FROM apache/airflow:3.3.2-python3.11

USER root
# Volumes that are mounted on these folders take over their owner.
RUN install -d -o airflow -g 0 -m 0775 /opt/krake /opt/airflow/logs /var/lib/krake/queue /var/lib/krake/scratch \
        /var/lib/krake/search /var/lib/krake/realtime /var/lib/krake/fetcher \
        /var/lib/krake/certificates/live-1 /var/lib/krake/certificates/live-2 \
        /logs/api-server /logs/scheduler /logs/dag-processor /logs/batch /logs/node-a /logs/node-b /logs/node-c
# docker-compose.yml puts memory of these modes here. At a restart runc 1.1 gives it the mode of the folder below.
RUN install -d -m 1777 /run/krake /opt/airflow
USER airflow
WORKDIR /opt/krake

ENV VIRTUAL_ENV=/opt/krake/.venv \
    PATH=/opt/krake/.venv/bin:${PATH} \
    PIP_USER=false \
    PYTHONPATH=/opt/krake/plugins:/opt/krake \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/krake/dags \
    AIRFLOW__CORE__PLUGINS_FOLDER=/opt/krake/plugins

# The certificate (PEM text) of a proxy that opens TLS on the way to the package index; empty where there is none.
# Downloads alone trust it: pip by `PIP_CERT`, uv by `SSL_CERT_FILE`, which containers do not have.
ARG CERTIFICATE=""
ARG PIP_CERT=/opt/krake/certificates.pem
ARG SSL_CERT_FILE=/opt/krake/certificates.pem
RUN { cat /etc/ssl/certs/ca-certificates.crt; printf '%s\n' "${CERTIFICATE}"; } > certificates.pem

COPY --chown=airflow:0 requirements.build.lock requirements.image.lock requirements.compiler.lock ./
RUN python -m venv --clear .venv \
    && .venv/bin/python -m pip install --quiet --no-cache-dir --require-hashes -r requirements.build.lock \
    && .venv/bin/uv pip sync --quiet --no-cache --compile-bytecode --python .venv/bin/python --require-hashes --no-build-isolation \
        requirements.build.lock requirements.image.lock

# Containers are read-only: what is not compiled here, each of their processes would compile at its start.
COPY --chown=airflow:0 pyproject.toml README.md LICENSE ./
COPY --chown=airflow:0 crawl_lib crawl_lib
COPY --chown=airflow:0 sql sql
COPY --chown=airflow:0 plugins plugins
COPY --chown=airflow:0 dags dags
COPY --chown=airflow:0 config config
RUN .venv/bin/uv pip install --quiet --no-cache --python .venv/bin/python --no-deps --no-build-isolation --editable . \
    && .venv/bin/python crawl_lib/parse/native/compile.py requirements.compiler.lock \
    && .venv/bin/python -m compileall -q crawl_lib plugins dags
