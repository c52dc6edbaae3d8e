"""A fetching process starts without what it does not need, and keeps the memory that it needs again and again."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_a_fetching_process_makes_tables_without_numpy_pandas_and_database_clients():
    code = """
import os, socket, sys
from crawl_lib.worker import process
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
ours.close()  # so there is nothing to fork
sys.argv = ["process", str(os.getppid()), str(theirs.detach())]
process.main()
import pyarrow as pa
assert pa.array(["x", None]).to_pylist() == ["x", None]
unwanted = {"numpy", "pandas", "pymysql", "yaml", "duckdb", "pyarrow.parquet"}
loaded = {name for name, module in sys.modules.items() if module is not None}
loaded |= {name.partition(".")[0] for name in loaded}  # None hides a package, not its modules
assert not unwanted & loaded, unwanted & loaded
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_fetching_process_loads_no_code_of_repair_or_of_whole_crawls():
    code = """
import sys
import crawl_lib.worker.worker
rooms = {name.split(".")[1] for name in sys.modules if name.startswith("crawl_lib.")}
assert {"fetch", "parse", "segment", "worker"} <= rooms, rooms
unwanted = rooms & {*"repair curate crawldir rounds node seeds export graph engine stages cli".split()}
assert not unwanted, unwanted
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries have other allocators"
)
def test_the_memory_of_one_page_serves_the_next():
    """Else glibc gives the trees of such pages back to the kernel; thousands of page faults bring them again."""
    code = """
import resource
from crawl_lib.walls.process import keep_memory
keep_memory()
from crawl_lib.config import ParseConfig
from crawl_lib.parse import parse_html
def read_all():
    for links in (100, 300, 700, 1500, 2500):
        page = b"<p><a href=x>text</a>" * links
        parse_html(page, url="http://a.b/", header_charset=None, config=ParseConfig())
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    before = read_all()
for _ in range(10):
    after = read_all()
assert after - before < 500, after - before
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_arrow_takes_its_memory_where_the_rest_does():
    """An allocator of its own costs 2 % of the CPU of a crawl."""
    code = """
from crawl_lib.walls.process import keep_memory
keep_memory()
import pyarrow
assert pyarrow.default_memory_pool().backend_name == "system", pyarrow.default_memory_pool().backend_name
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_fetching_process_may_have_as_many_descriptors_as_the_system_allows():
    """Python itself keeps the limit that it was started with; sockets beyond it would be failures of hosts."""
    code = """
import resource
from crawl_lib.walls.process import DESCRIPTORS, allow_descriptors
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, most))
allow_descriptors()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(most, DESCRIPTORS), most)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
