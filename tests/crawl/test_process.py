"""A fetching process starts without what it does not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_fetching_process_makes_tables_without_numpy_pandas_and_database_clients():
    code = """
import sys
from crawl_lib.crawl import process
sys.stdin = open("/dev/null")
try:
    process.main()
except ValueError:
    pass  # there is no task
import pyarrow as pa
assert pa.array(["x", None]).to_pylist() == ["x", None]
unwanted = {"numpy", "pandas", "pymysql", "yaml", "duckdb", "pyarrow.parquet"} & set(sys.modules)
assert not unwanted, unwanted
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
