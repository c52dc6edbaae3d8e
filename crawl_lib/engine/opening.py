"""From the config to an engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from crawl_lib.config import Config
from crawl_lib.engine.base import Engine, Room
from crawl_lib.engine.duck import open_duck


@contextmanager
def open_engine(config: Config, room: Room) -> Iterator[Engine]:
    """The engine that `batch.engine` names, closed at the end of the block.

    Raises ConfigError where Spark cannot run here (its extra or Java is missing, or it could not read the store),
    StorageError.
    """
    room.storage.delete(room.hidden)
    if config.batch.engine == "spark":
        from crawl_lib.engine.spark import open_spark  # noqa: PLC0415 - an extra, which a DuckDB user need not have

        engine: Engine = open_spark(config, room)
    else:
        engine = open_duck(room)
    try:
        yield engine
    finally:
        engine.close()
