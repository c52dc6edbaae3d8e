"""Airflow's logging in the containers of workers, without a line that edge workers write every second."""

from typing import Any

from airflow.config_templates.airflow_local_settings import DEFAULT_LOGGING_CONFIG

QUIET = "airflow.providers.edge3.cli.worker"
"""Logs "1 job is running" as INFO. Airflow's `namespace_levels` does not hold for loggers of the standard library."""
LOGGING_CONFIG: dict[str, Any] = {
    **DEFAULT_LOGGING_CONFIG,
    "loggers": {**DEFAULT_LOGGING_CONFIG.get("loggers", {}), QUIET: {"level": "WARNING"}},
}
"""For `logging.logging_config_class`."""
