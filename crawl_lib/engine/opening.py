"""From the config to an engine."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from crawl_lib.config import Config
from crawl_lib.engine.engine import Engine, Room
from crawl_lib.errors import ConfigError, StoppedError


@contextmanager
def open_engine(config: Config, room: Room) -> Iterator[Engine]:
    """The engine that `batch.engine` names, closed at the end of the block.

    Raises ConfigError where Spark cannot run here (its extra or Java is missing, or it could not read the store),
    StorageError.
    """
    room.storage.delete(room.hidden)
    if config.batch.engine == "spark":
        engine: Engine = _open_spark(config, room)
    else:
        from crawl_lib.engine.duck import open_duck  # noqa: PLC0415 - an eighth of what a task of the crawl imports

        engine = open_duck(room)
    try:
        yield engine
    except BaseException as error:
        # Airflow's time limit and Ctrl-C are no Exception: as for a stop, nobody waits for what runs.
        if isinstance(error, StoppedError) or not isinstance(error, Exception):
            engine.interrupt()
        raise
    finally:
        engine.close()


def _open_spark(config: Config, room: Room) -> Engine:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of PySpark about pandas, which is not used
            from crawl_lib.engine.spark import open_spark  # noqa: PLC0415 - an extra, which others need not have
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"pyspark", "py4j"}:
            raise
        raise ConfigError(
            "batch.engine: spark needs the extra `spark`, which is not installed: run `make setup-spark`, or set"
            " batch.engine: duckdb"
        ) from error
    return open_spark(config, room)
