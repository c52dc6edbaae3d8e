"""The key store on its embedded back end: asking and inserting, in batches."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from benchmarks.report import Row, measure
from crawl_lib.config import KeyStorageConfig
from crawl_lib.keys import open_key_store

KEYS = 500_000
BATCH = 50_000


def ask_and_insert(path: str) -> dict[str, float]:
    """Keys per second of `unknown` on new keys, `insert`, and `unknown` on known keys."""
    keys = [hashlib.sha1(str(number).encode()).digest() for number in range(KEYS)]
    batches = [keys[start : start + BATCH] for start in range(0, KEYS, BATCH)]
    rates = {}
    with open_key_store(KeyStorageConfig(servers=(path,))) as store:
        store.ensure_tables()
        for name, step in (("unknown", store.unknown), ("insert", store.insert), ("known", store.unknown)):
            begun_s = time.perf_counter()
            for batch in batches:
                step(batch)
            rates[name] = KEYS / (time.perf_counter() - begun_s)
    return rates


def run(directory: Path) -> list[Row]:
    """Half a million keys on one SQLite file."""
    rates = measure(ask_and_insert, str(directory / "0.sqlite")).result
    return [Row(f"keys: {name}, SQLite", f"{rate:,.0f} keys/s", "100,000") for name, rate in rates.items()]
