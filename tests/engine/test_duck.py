"""DuckDB as an engine: the contract, on a local directory and over a remote store; room on the disk."""

from __future__ import annotations

import random
import signal
import threading
from dataclasses import replace
from hashlib import sha1
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl_lib.config import Config
from crawl_lib.engine import Workplace, duck, open_engine
from crawl_lib.errors import NoRoomError, StoppedError
from crawl_lib.stopping import Work
from crawl_lib.storage import LocalStorage
from tests.engine.contract import EngineContract, put
from tests.export.test_remote import Elsewhere


class NoCopies(Elsewhere):
    """A remote store of which nothing may be copied to the disk."""

    def download(self, path: str, local: Path) -> None:
        raise AssertionError(f"{path} is copied")


class Duck(EngineContract):
    @pytest.fixture
    def engine(self, config, storage, tmp_path):
        scratch = tmp_path / "room"
        scratch.mkdir()
        with open_engine(config, Workplace(storage, scratch, "hidden", 1 << 30)) as engine:
            yield engine


class TestDuckOnLocalDirectory(Duck):
    @pytest.fixture
    def storage(self, tmp_path):
        (tmp_path / "dfs").mkdir()
        return LocalStorage.open(tmp_path / "dfs")


class TestDuckOverRemoteStore(Duck):
    @pytest.fixture
    def storage(self, tmp_path):
        (tmp_path / "dfs").mkdir()
        return NoCopies(LocalStorage.open(tmp_path / "dfs"))


def test_sorting_keeps_to_its_memory_and_leaves_no_file(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice as much as the memory goes through scratch, and is deleted there."""
    monkeypatch.setattr("crawl_lib.engine.engine.SQL_DIRECTORY", tmp_path)
    (tmp_path / "q.sql").write_text("select key, repeat(hex(key), 9) as more from t order by key")
    (tmp_path / "dfs").mkdir()
    scratch = tmp_path / "room"
    scratch.mkdir()
    storage = LocalStorage.open(tmp_path / "dfs")
    rng = random.Random(1)
    keys = [rng.randbytes(20) for _ in range(700_000)]
    put(storage, "t.parquet", pa.table({"key": pa.array(keys, pa.binary())}))
    with open_engine(config, Workplace(storage, scratch, "hidden", 1)) as engine:
        engine.table("t", "t.parquet")
        stream = engine.stream("q", 1 << 14)
        first = next(stream)
        assert sum(file.stat().st_size for file in scratch.rglob("*") if file.is_file()) > 10 << 20
        found = [
            *first.column(0).to_pylist(),
            *(key for batch in stream for key in batch.column(0).to_pylist()),
        ]
    assert found == sorted(keys)
    assert [file for file in scratch.rglob("*") if file.is_file()] == []


def test_sorting_keeps_to_its_disk(config: Config, endless: Workplace, tmp_path: Path) -> None:
    """Beyond it is an error that names the option; nothing is left."""
    (tmp_path / "much.sql").write_text(
        "select md5(range::varchar) as a, range as b from range(20000000) order by a"
    )
    room = replace(endless, memory_bytes=1, max_bytes=10 << 20)
    with (
        open_engine(config, room) as engine,
        pytest.raises(NoRoomError, match=r"more room than scratch\.max_bytes"),
    ):
        next(engine.stream("much", 10))
    assert [file for file in room.scratch.rglob("*") if file.is_file()] == []


@pytest.mark.parametrize(
    ("needed", "count"), [(1, 1), (8, 16), (9, 32), (16, 32), (17, 64), (1000, 64)]
)
def test_each_key_is_in_one_share_and_a_share_fits_into_half_of_the_memory(
    config: Config, endless: Workplace, tmp_path: Path, needed: int, count: int
) -> None:
    """As far as there are so many shares. `needed`: how often the memory is needed for all keys."""
    keys = sorted(bytes([first, *random.Random(first).randbytes(19)]) for first in range(256))
    (tmp_path / "asked.sql").write_text("select key from narrow order by key")
    with open_engine(config, endless) as engine:
        shares = engine.shares(endless.memory_bytes * needed)
        engine.values("keys", pa.table({"key": pa.array(keys, pa.binary())}))
        found = []
        for share in shares:
            engine.define("narrow", f"select * from keys where {share}")
            found.append(engine.column("asked"))
        assert [key for some in found for key in some] == keys
        assert [len(some) for some in found] == [256 // count] * count


@pytest.mark.parametrize("needed", [1, 8])
def test_what_is_kept_of_no_rows_has_its_columns_and_more_follows_it(
    config: Config, endless: Workplace, tmp_path: Path, needed: int
) -> None:
    """In one file, and by shares of the keys, where no rows leave no file; also if it was kept before the shares."""
    schema = pa.schema(
        {
            "key": pa.binary(),
            "n": pa.int16(),
            "at": pa.timestamp("us"),
            "words": pa.list_(pa.string()),
        }
    )
    rows = pa.Table.from_pylist(
        [{"key": bytes([n]) * 20, "n": n, "words": ["a", None]} for n in range(3)], schema
    )
    (tmp_path / "none.sql").write_text("select * from given where n > 9")
    (tmp_path / "all.sql").write_text("select * from given")
    for name in ("before", "after"):
        (tmp_path / f"{name}.sql").write_text(f"select * from {name} order by key")
    with open_engine(config, endless) as engine:
        engine.values("given", rows)
        engine.keep("before", "none")
        engine.shares(endless.memory_bytes * needed)
        engine.keep("after", "none")
        for name in ("before", "after"):
            assert engine.column(name) == []
            for _ in range(2):
                engine.keep(name, "none", more=True)
                engine.keep(name, "all", more=True)
            [batch] = engine.stream(name, 10)
            assert batch.schema == schema
            assert batch.to_pylist() == sorted(rows.to_pylist() * 2, key=lambda row: row["key"])
            engine.keep(name, "none")
            assert engine.column(name) == []


def test_what_is_kept_by_shares_is_written_in_small_blocks(
    config: Config, endless: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file has the rows of one share, those of several blocks, and no row is lost."""
    monkeypatch.setattr(duck, "MOST_BLOCK_BYTES", 1 << 15)
    monkeypatch.setattr(duck, "BLOCK_ROWS", 100)
    rows = pa.table({"n": range(9000), "key": [sha1(b"%d" % n).digest() for n in range(9000)]})
    (tmp_path / "all.sql").write_text("select * from given")
    (tmp_path / "kept.sql").write_text("select * from kept order by n")
    with open_engine(config, endless) as engine:
        engine.values("given", rows)
        shares = engine.shares(endless.memory_bytes * 10)
        engine.keep("kept", "all")
        files = sorted((endless.scratch / "kept" / "kept").iterdir())
        firsts = [
            {key[0] * len(shares) // 256 for key in pq.read_table(file)["key"].to_pylist()}
            for file in files
        ]
        groups = [pq.ParquetFile(file).num_row_groups for file in files]
        assert sorted(firsts, key=min) == [{share} for share in range(len(shares))]
        assert min(groups) > 5
        assert pa.Table.from_batches(engine.stream("kept", 10_000)).to_pylist() == rows.to_pylist()


ENDLESS = (
    "select count(*) as n from range(10000000) a, range(10000000) b where a.range * b.range % 7 = 3"
)


class TimeLimitError(BaseException):
    """As Airflow's: no Exception, raised by the handler of SIGALRM."""


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Workplace:
    """A room for a query `endless`, which takes days."""
    monkeypatch.setattr("crawl_lib.engine.engine.SQL_DIRECTORY", tmp_path)
    (tmp_path / "endless.sql").write_text(ENDLESS)
    (tmp_path / "dfs").mkdir()
    (tmp_path / "room").mkdir()
    return Workplace(LocalStorage.open(tmp_path / "dfs"), tmp_path / "room", "hidden", 1 << 30)


def test_a_long_query_ends_when_the_stage_is_stopped(config: Config, endless: Workplace) -> None:
    """By what is told of the progress, and by another thread."""
    work = Work(on_progress=lambda _: work.stop.set())
    with open_engine(config, replace(endless, work=work)) as engine, pytest.raises(StoppedError):
        next(engine.stream("endless", 10, "stage"))
    room = Workplace(endless.storage, endless.scratch, endless.hidden, endless.memory_bytes)
    timer = threading.Timer(0.2, room.work.stop.set)
    with open_engine(config, room) as engine:
        timer.start()
        with pytest.raises(StoppedError):
            engine.value("endless")


def test_a_signal_is_heard_within_a_long_query(config: Config, endless: Workplace) -> None:
    """A time limit of Airflow is an exception that a signal's handler raises in the main thread."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise TimeLimitError

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(TimeLimitError), open_engine(config, endless) as engine:  # noqa: PT012 - it has to close
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            engine.value("endless")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")
    ]


def test_a_view_is_read_as_what_it_reads_is_then(
    config: Config, endless: Workplace, tmp_path: Path
) -> None:
    """Also where its text names tables in a comment, has a table of its own, or is given before what it reads."""
    (tmp_path / "outer.sql").write_text(
        "-- read from middle\nwith own as (select n from middle) select n from own"
    )
    (tmp_path / "q.sql").write_text("select outer_view.n as n from outer_view order by n desc")
    with open_engine(config, endless) as engine:
        engine.view("outer_view", "outer")
        engine.define("middle", "select n * 10 as n from t")
        for rows, found in (([1, 2], [20, 10]), ([], []), ([3], [30])):
            engine.values("t", pa.table({"n": pa.array(rows, pa.int32())}))
            assert engine.column("q") == found
        engine.define("middle", "select 'text' as n")
        assert engine.column("q") == ["text"]
