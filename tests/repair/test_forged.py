"""Records of other pages, put as gzip members into bodies: no repair believes them, whatever damage bares them."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from random import Random

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.crawldir import SegmentRef
from crawl_lib.curate.importing import import_archives
from crawl_lib.repair.fsck import fsck, repair_crawl
from crawl_lib.repair.segments.known import read_lost
from crawl_lib.repair.segments.salvage import SalvageReport, _Salvage
from crawl_lib.segment import SegmentReader
from crawl_lib.segment.encoder import RecordEncoder, WarcInfo
from crawl_lib.stores import open_stores
from crawl_lib.urls import key_of
from tests.e2e.crawl import make_config
from tests.frontier.conftest import _no_fsync
from tests.repair.archives import answer, archive, question, record_id
from tests.repair.crawled import problems, rows, stores_of, warc_of
from tests.segment.helpers import answered, failed, taken

__all__ = ["_no_fsync"]
SEEDS = 200
MEMBER = b"\x1f\x8b\x08\0"
PLANTED = b"planted.example"
OTHER_FILE = "<urn:uuid:01234567-89ab-4cde-8f01-23456789abcd>"
INFO = WarcInfo("9", "f" * 64, "forged", "obey", "1/x")
HONEST = [f"http://old.example/{number}" for number in range(6)]
ROBOTS = "http://old.example/robots.txt"


def forged_groups(rng: Random) -> bytes:
    """Groups of records of pages that nobody fetched, with the id of another file, with none, or with a warcinfo."""
    out = b""
    for number in range(rng.randint(2, 5)):
        encoder = RecordEncoder(file_id=rng.choice(["", OTHER_FILE]))
        if rng.random() < 0.3:
            out += encoder.warcinfo("krake-1-x-0-00000.warc.gz", INFO, 1.0)
        url = f"http://planted.example/{number}"
        page = b"<a href=http://planted.example/link>x</a>" + rng.randbytes(40)
        item = taken(rng.choice([0, 1, 70, 500 + number]), url)
        group = encoder.group(rng.choice([answered(url, page), failed(url)]), item)
        cut = rng.choice([0, 0, 0, 60])
        out += group.data[: len(group.data) - cut] + rng.choice([b"", rng.randbytes(9)])
    return out


def hostile_body(rng: Random) -> bytes:
    """A body that does not compress, and is so long that its end lies in the file byte for byte."""
    return rng.randbytes(270_000) + b"".join(
        forged_groups(rng) + rng.randbytes(16_000) for _ in range(3)
    )


def archive_of(seed: int) -> bytes:
    """Honest pages, and between them hostile ones: in the body of an answer, of a robots.txt, and of a request."""
    rng = Random(seed)
    records = [question(url, WARC_Concurrent_To=record_id("response", url)) for url in HONEST]
    records[1] = records[1][: -len(b"\r\n\r\n")] + hostile_body(rng) + b"\r\n\r\n"
    size = len(records[1].partition(b"\r\n\r\n")[2]) - 4
    records[1] = question_with(HONEST[1], records[1], size)
    bodies = [
        hostile_body(rng) if number in {0, 3} else b"<p>page %d" % number
        for number in range(len(HONEST))
    ]
    pairs = [
        one
        for url, asked, body in zip(HONEST, records, bodies, strict=True)
        for one in (asked, answer(url, body))
    ]
    return archive([*pairs[:6], answer(ROBOTS, hostile_body(rng)), *pairs[6:]])


def question_with(url: str, asked: bytes, size: int) -> bytes:
    """A request record with the length of its block, and no digest of it."""
    lines = [
        line for line in asked.partition(b"\r\n\r\n")[0].split(b"\r\n") if b"Digest" not in line
    ]
    head = b"\r\n".join(line for line in lines if not line.startswith(b"Content-Length"))
    return head + b"\r\nContent-Length: %d\r\n\r\n" % size + asked.partition(b"\r\n\r\n")[2]


@pytest.fixture(scope="module", params=["ids", "older"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Crawls with such pages; in those of an older version records name no file."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "older":
            real = RecordEncoder.warcinfo

            def without(self: RecordEncoder, *facts: object) -> bytes:
                data = real(self, *facts)
                self.file_id = ""
                return data

            patch.setattr(RecordEncoder, "warcinfo", without)
        homes = []
        for seed in range(2):
            home = tmp_path_factory.mktemp(request.param) / "crawl"
            home.mkdir()
            config = make_config(home, nodes=1)
            stages.inject(open_stores(config), run_id="run", seeds=HONEST[0])
            (home / "x.warc.gz").write_bytes(archive_of(seed))
            report = import_archives(stores_of(config), [str(home / "x.warc.gz")])
            assert report.files[0].pages == len(HONEST)
            [warc] = home.rglob("krake-*.warc.gz")
            assert warc.read_bytes().count(MEMBER) > 40, (
                "the members in the bodies are not in the file"
            )
            homes.append(home)
    return homes


def copied(home: Path, directory: Path) -> tuple[Config, Path, SegmentRef]:
    """A copy of a crawl, its imported segment, and that segment's name."""
    shutil.copytree(home, directory)
    config = make_config(directory, nodes=1)
    [segment] = Path(config.dfs_primary).glob("*/1*/import")
    return config, segment, stores_of(config).crawl.segment(segment.parent.name, segment.name)


def harm(segment: Path, rng: Random) -> None:
    """Flip bits of the WARC file, mostly in members that hold others, and sometimes damage what names its records."""
    warc = warc_of(segment)
    data = bytearray(warc.read_bytes())
    starts = [int(row["warc_offset"]) for row in rows(segment)]
    for _ in range(rng.choice((1, 1, 2, 4))):
        near = rng.choice([rng.choice(starts), rng.choice(starts), 0, rng.randrange(len(data))])
        at = min(near + rng.choice([3, rng.randrange(10), rng.randrange(3000)]), len(data) - 1)
        data[at] ^= 1 << rng.randrange(8)
    if rng.random() < 0.2:
        data = data[: rng.randrange(len(data))]
    warc.write_bytes(data)
    for name, share in (("manifest.json", 0.3), ("pages.parquet", 0.3), ("index.cdxj", 0.2)):
        if rng.random() < share:
            (segment / name).unlink()


def check(config: Config, segment: Path, name: SegmentRef) -> set[str]:
    """No table, line or list names a page that was not fetched; returns the pages that are kept."""
    assert problems(config, name) == []
    kept = {row["url"] for row in rows(segment)}
    assert kept <= set(HONEST)
    stores = stores_of(config)
    assert {queued.url for queued in read_lost(stores, name)} <= set(HONEST) - kept
    reader = SegmentReader(stores.storage, name.path)
    outlinks = b"\n".join(line for node in config.servers for line in reader.outlinks(node))
    assert (
        PLANTED
        not in outlinks
        + (segment / "index.cdxj").read_bytes()
        + repr(rows(segment, "links")).encode()
    )
    for file in reader.warc_files:
        for record in reader.records(file):
            assert "planted" not in record.url
    return kept


def test_no_repair_believes_records_in_bodies(made: list[Path], tmp_path: Path) -> None:
    """What a repair would keep and queue, for each of many damages; the next test carries some of them out."""
    keys = {key_of(url) for url in HONEST}
    kept = 0
    for number, home in enumerate(made):
        config, segment, name = copied(home, tmp_path / str(number))
        files = {file: file.read_bytes() for file in segment.iterdir()}
        for seed in range(number, SEEDS // 2, len(made)):
            harm(segment, Random(seed))
            found = _Salvage(stores_of(config), name, SalvageReport(), time.time)
            assert found.found.keys <= keys
            assert found.lone.keys() <= keys
            assert {queued.url for queued in found.lost} <= set(HONEST)
            kept += len(found.found.keys)
            for file, data in files.items():
                file.write_bytes(data)
    assert kept > SEEDS // 2 * 2, "hardly a page came out"


def test_fsck_repairs_such_a_crawl_and_no_key_is_of_a_planted_page(
    made: list[Path], tmp_path: Path
) -> None:
    for seed in range(1000, 1006):
        config, segment, name = copied(made[seed % len(made)], tmp_path / str(seed))
        harm(segment, Random(seed))
        repair_crawl(open_stores(config))
        check(config, segment, name)
        with open_stores(config).keys() as keys:
            planted = [
                key_of(f"http://planted.example/{path}")
                for path in ("0", "1", "2", "3", "4", "link")
            ]
            assert set(keys.states(set(planted)).values()) <= {None}
        for file in Path(config.queue.local_dir).rglob("*"):
            assert not file.is_file() or PLANTED not in file.read_bytes(), file
        assert [one for one in fsck(open_stores(config)).findings if one.severity == "error"] == []
