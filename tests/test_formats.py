"""The examples of docs/formats.md are what Krake writes, byte for byte."""

from __future__ import annotations

import re
import shutil
import subprocess
from datetime import UTC, datetime
from hashlib import sha1
from pathlib import Path

import pyarrow as pa
import pytest

from crawl_lib.captures import PLACES_SCHEMA
from crawl_lib.config import Config
from crawl_lib.crawldb import CRAWLDB_SCHEMA, Status
from crawl_lib.duplicates import DUPLICATES_SCHEMA
from crawl_lib.export import export_pages
from crawl_lib.graph import finalize_export, link_export
from crawl_lib.linkdb import INLINKS_SCHEMA, OUTLINKS_SCHEMA
from crawl_lib.ranks import LINKRANK_SCHEMA
from crawl_lib.records import Earlier, Fetched, QueuedUrl
from crawl_lib.segment import LINKS_SCHEMA, PAGES_SCHEMA, Position
from crawl_lib.segment.cdxj import cdxj_line
from crawl_lib.states import Outcome
from crawl_lib.storage import open_storage
from crawl_lib.terms import TERMS_SCHEMA
from crawl_lib.text import TEXT_SCHEMA
from crawl_lib.urlfiles import HANDED_ON, encode_line, encode_meta
from tests.export.crawls import Capture, CrawlMaker, key
from tests.stores import stores_on

TEXT = (Path(__file__).resolve().parents[1] / "docs" / "formats.md").read_text()
A, B, C = "http://a.example/", "http://b.example/", "http://c.example/"
EARLIER = Earlier(
    segment="1795000000/node-a",
    file="krake-1795000000-node-a-0-00000.warc.gz",
    offset=2048,
    time=1795000003.5,
    digest=sha1(b"").hexdigest(),
    etag='"x"',
)
EXPORTED = ("urlmapping", "offsets", "content", "webgraph", "webgraph-index")


def example(name: str) -> bytes:
    """The bytes of an example: pairs of hex digits before column 62, words behind it."""
    [block] = re.findall(rf"^```hex {name}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return b"".join(bytes.fromhex(line[:62]) for line in block.splitlines())


@pytest.fixture
def exported(config: Config) -> Path:
    """The folder of an export of the three pages: `a` links to `b`, `c` and itself, `b` to `a`."""
    crawl = CrawlMaker(Path(config.dfs_primary))
    pages = [Capture(A, b"alpha", links=[B, C, A]), Capture(B, b"beta", links=[A]), Capture(C)]
    crawl.segment("1700000000", "node-a", pages)
    storage = open_storage(config)
    export_pages(stores_on(storage, config), name="x", segments=crawl.segments)
    link_export(stores_on(storage, config), name="x")
    finalize_export(stores_on(storage, config), name="x")
    return Path(config.dfs_primary) / config.export.directory / "x"


def test_the_files_of_an_export(exported: Path) -> None:
    assert {name: (exported / name).read_bytes() for name in EXPORTED} == {
        name: example(name) for name in EXPORTED
    }


def test_the_python_example(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert code.count("data/dfs/export/1700000000") == 1
    exec(code.replace("data/dfs/export/1700000000", str(exported)), {})
    assert capsys.readouterr().out == "b'alpha'\n[1, 2]\n"


def test_the_java_example(exported: Path, tmp_path: Path) -> None:
    java, javac = shutil.which("java"), shutil.which("javac")
    if java is None or javac is None:
        pytest.skip("javac or java is not installed (Debian: default-jdk-headless)")
    [code] = re.findall(r"^```java\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    (tmp_path / "Page.java").write_text(code)
    done = subprocess.run(
        [java, "Page.java", str(exported), "1"], cwd=tmp_path, capture_output=True
    )
    assert (done.returncode, done.stdout) == (0, b"beta"), done.stderr


def test_lines_of_urls() -> None:
    """Of `outlinks`, and of a queue's data file with its meta."""
    [block] = re.findall(r"^```text outlinks\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    urls = [
        (QueuedUrl(A, metadata='{"topic": "letters"}'), ""),
        (QueuedUrl(B, key(A), 1), ""),
        (QueuedUrl(C, key(B), 1, 1), HANDED_ON),
        (QueuedUrl(f"{C}style.css", key(B), 1, requisite=1), ""),
        (QueuedUrl(C, key(B), 1, list_name="retry-1795000000-5d2b1c0a9e3f"), HANDED_ON),
        (QueuedUrl(C, key(B), 1, list_name="7-1", earlier=EARLIER.to_text()), HANDED_ON),
    ]
    assert block.replace("→", "\t").encode().splitlines() == [
        encode_line(url, flags) for url, flags in urls
    ]
    assert encode_meta(urls[1][0]).decode().replace("\t", "→") in TEXT


WORDS = {
    "fixed_size_binary[20]": "20 bytes",
    "string": "text",
    "timestamp[us, tz=UTC]": "time",
    "bool": "boolean",
}
TABLES = [
    ("pages", PAGES_SCHEMA),
    ("links", LINKS_SCHEMA),
    ("crawldb", CRAWLDB_SCHEMA),
    ("outlinks", OUTLINKS_SCHEMA),
    ("linkdb", INLINKS_SCHEMA),
    ("linkrank", LINKRANK_SCHEMA),
    ("captures", PLACES_SCHEMA),
    ("text", TEXT_SCHEMA),
    ("duplicates", DUPLICATES_SCHEMA),
    ("terms", TERMS_SCHEMA),
]


@pytest.mark.parametrize(("name", "schema"), TABLES)
def test_the_columns_of_the_tables(name: str, schema: pa.Schema) -> None:
    [table] = re.findall(
        rf"`{name}`:\n\n\| column \| type \| what \|\n\|---\|---\|---\|\n((?:\|.*\|\n)+)", TEXT
    )
    columns = [(field.name, WORDS.get(str(field.type), str(field.type))) for field in schema]
    assert re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$", table, re.MULTILINE) == columns


def test_the_statuses_of_the_crawldb() -> None:
    [row] = re.findall(r"^\| `status` \| text \| (`unfetched`.*) \|$", TEXT, re.MULTILINE)
    assert row == ", ".join(f"`{status}`" for status in Status)


def test_a_line_of_an_index() -> None:
    [block] = re.findall(r"^```text cdxj\n(.*?)\n```$", TEXT, re.MULTILINE | re.DOTALL)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"
    time = datetime(2026, 11, 22, 16, tzinfo=UTC).timestamp()
    fetched = Fetched("http://127.0.0.1:8080/a?c=2&b=1", time, Outcome.OK, status=200, head=head)
    position = Position("krake-1795000000-node-a-0-00000.warc.gz", 2048, 1021)
    assert block == cdxj_line(fetched, "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ", position)
