"""Common Crawl's index and WET files of a crawl, compared with what warcio says of its records."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import random
import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from publicsuffixlist import PublicSuffixList
from warcio.archiveiterator import ArchiveIterator

from crawl_lib import stages
from crawl_lib.commoncrawl import COMMONCRAWL_OUTPUT, index, make_index, make_wet, wet
from crawl_lib.commoncrawl.captures import SegmentCaptures
from crawl_lib.commoncrawl.columns import CAPTURE_SCHEMA, INDEX_SCHEMA, index_rows
from crawl_lib.commoncrawl.index import MAKERS
from crawl_lib.commoncrawl.languages import THREE_LETTERS, three_letters
from crawl_lib.config import Config
from crawl_lib.config.model import COMMONCRAWL_MADE, CommonCrawlConfig
from crawl_lib.curate import drop_pages
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.errors import InputError, OutputConflictError
from crawl_lib.segment import SegmentReader, WantedRecord, surt
from crawl_lib.stores import Stores, open_stores
from crawl_lib.text import text_table
from demo import Serving, SynthWeb
from tests.e2e.crawl import make_config
from tests.forked import run_forked
from tests.s3 import BUCKET, credential_variables, s3_server
from tests.stores import stores_on
from tests.test_readme import ROOT, fences

RUN = "one"
SUBSETS = ("warc", "crawldiagnostics", "robotstxt")
ICANN, WHOLE = (
    PublicSuffixList(only_icann=True, accept_unknown=False),
    PublicSuffixList(accept_unknown=False),
)
OWN = ("wet_filename", "wet_record_offset", "wet_record_length")


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A crawl of three iterations on two nodes, with texts."""
    return crawl_of(
        SynthWeb(seed=3, sites=3, pages_per_site=10), tmp_path_factory.mktemp("crawled")
    )


def crawl_of(pages: SynthWeb, directory: Path) -> Config:
    """Crawl a web for three iterations on two nodes, and make index, WET files and texts."""
    asked = {"make": ["index", "wet"]}
    config = make_config(directory, nodes=2, fetch={"host_delay_s": 0.0}, commoncrawl=asked)
    with Serving(pages) as web:
        stages.inject(open_stores(config), run_id=RUN, seeds="\n".join(web.seeds))
        for iteration in (1, 2, 3):
            for node in config.servers:
                stages.crawl_node(open_stores(config), run_id=RUN, iteration=iteration, node=node)
            stages.commit_iteration(open_stores(config), run_id=RUN, iteration=iteration)
    stages.make_output(open_stores(config), output="commoncrawl")
    return config


@pytest.fixture
def stores(crawled: Config, tmp_path: Path) -> Stores:
    """A copy of it."""
    root = shutil.copytree(crawled.dfs_primary, tmp_path / "dfs")
    return open_stores(replace(crawled, dfs_primary=str(root)))


def folder_of(config: Config, kind: str) -> Path:
    [found] = [
        path
        for path in (Path(config.dfs_primary) / kind).iterdir()
        if not path.name.startswith(".")
    ]
    return found


def rows_of(config: Config, subset: str) -> list[dict[str, Any]]:
    """The rows of a part of the index, in the order of its files."""
    paths = sorted((folder_of(config, "cc-index") / f"subset={subset}").iterdir())
    return [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


def records(path: Path, *, check: bool = True) -> Iterator[Any]:
    """The records of a WARC file, each with its place."""
    with path.open("rb") as file:
        found = ArchiveIterator(file, check_digests="raise" if check else False)
        for record in found:
            record.content = record.content_stream().read()
            yield record, found.get_record_offset(), found.get_record_length()


def expected(config: Config) -> dict[tuple[str, int], dict[str, Any]]:
    """What an index says of each capture, by file and offset, of its WARC records and its URL alone."""
    found = {}
    root = Path(config.dfs_primary)
    for path in sorted(root.glob("crawl/*/[!.]*/*.warc.gz")):
        name, segment = str(path.relative_to(root)), f"{path.parent.parent.name}/{path.parent.name}"
        last = None
        for record, offset, length in records(path, check=False):
            header = record.rec_headers.get_header
            if record.rec_type in ("response", "revisit"):
                last = (name, offset)
                found[last] = {
                    **of_url(header("WARC-Target-URI")),
                    "fetch_time": datetime.fromisoformat(header("WARC-Date")),
                    "fetch_status": int(record.http_headers.get_statuscode()),
                    "content_digest": header("WARC-Payload-Digest").removeprefix("sha1:"),
                    "content_mime_type": mime_of(record.http_headers.get_header("Content-Type")),
                    "content_truncated": header("WARC-Truncated"),
                    "warc_filename": name,
                    "warc_record_offset": offset,
                    "warc_record_length": length,
                    "warc_segment": segment,
                    "has_body": bool(record.content),
                }
            elif record.rec_type == "metadata" and last and b"krake-kind: robots" in record.content:
                found[last]["subset"] = "robotstxt"
            last = last if record.rec_type in ("response", "revisit") else None
    for row in found.values():
        is_ok = row["fetch_status"] == 200 and row.pop("has_body")
        row.pop("has_body", None)
        row.setdefault("subset", "warc" if is_ok else "crawldiagnostics")
    return found


def mime_of(value: str | None) -> str | None:
    return value.partition(";")[0].strip().lower() or None if value else None


def of_url(url: str) -> dict[str, Any]:
    """The columns that follow from a URL, by the standard library."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_name = not re.fullmatch(r"[0-9.]+|.*:.*", host)
    labels: list[str | None] = [*host.split(".")[::-1], *[None] * 5] if is_name else [None] * 6
    names = ("tld", "2nd_last_part", "3rd_last_part", "4th_last_part", "5th_last_part")
    return {
        "url_surtkey": surt(url),
        "url": url,
        "url_host_name": f"[{host}]" if ":" in host else host,
        **{f"url_host_{name}": label for name, label in zip(names, labels, strict=False)},
        "url_host_registry_suffix": ICANN.publicsuffix(host) if is_name else None,
        "url_host_registered_domain": ICANN.privatesuffix(host) if is_name else None,
        "url_host_private_suffix": WHOLE.publicsuffix(host) if is_name else None,
        "url_host_private_domain": WHOLE.privatesuffix(host) if is_name else None,
        "url_host_name_reversed": ".".join(host.split(".")[::-1]) if is_name else None,
        "url_protocol": parts.scheme,
        "url_port": parts.port,
        "url_path": parts.path,
        "url_query": parts.query or None,
    }


def test_the_schema_is_common_crawls_and_three_columns_more(testdata: Path) -> None:
    file = testdata / "ccindex" / "cc-index-schema-flat.json"
    if not file.is_file():
        pytest.skip(f"{file.name} is not there: it is third-party data, not part of the project")
    kinds = {
        "string": pa.string(),
        "integer": pa.int32(),
        "short": pa.int16(),
        "timestamp": pa.timestamp("ms", "UTC"),
    }
    fields = [
        one
        for one in json.loads(file.read_text())["fields"]
        if one["name"] not in ("crawl", "subset")
    ]
    assert [(one["name"], kinds[one["type"]], one["nullable"]) for one in fields] == [
        (field.name, field.type, field.nullable) for field in list(INDEX_SCHEMA)[:30]
    ]
    assert tuple(INDEX_SCHEMA.names[30:]) == OWN


@pytest.mark.slow
def test_each_column_of_a_thousand_rows_is_what_the_records_and_the_url_say(tmp_path: Path) -> None:
    assert (
        compared_rows(crawl_of(SynthWeb(seed=14, sites=12, pages_per_site=150), tmp_path)) >= 1_000
    )


def test_each_column_of_each_row_is_what_the_records_and_the_url_say(crawled: Config) -> None:
    assert compared_rows(crawled) > 100


def compared_rows(crawled: Config) -> int:
    """Compare the index of a crawl with WARC records and URLs; return the number of rows."""
    truth = expected(crawled)
    assert {row["subset"] for row in truth.values()} == set(SUBSETS)
    for subset in SUBSETS:
        rows = rows_of(crawled, subset)
        assert len(rows) == sum(row["subset"] == subset for row in truth.values())
        for row in rows:
            known = truth[row["warc_filename"], row["warc_record_offset"]]
            time = (
                known["fetch_time"]
                if subset != "robotstxt"
                else known["fetch_time"].replace(microsecond=0)
            )
            assert timedelta(0) <= time - row["fetch_time"] < timedelta(milliseconds=1)
            for name in known.keys() - {"fetch_time", "subset"}:
                assert row[name] == known[name], (name, row["url"])
    return len(truth)


def test_what_pages_and_texts_say_is_there_too(crawled: Config) -> None:
    root = Path(crawled.dfs_primary)
    tables = [pq.read_table(path).to_pylist() for path in root.glob("crawl/*/[!.]*/pages.parquet")]
    pages = {row["url"]: row for table in tables for row in table}
    languages = {}
    stores = open_stores(crawled)
    for segment in stores.crawl.segments():
        rows = pq.read_table(root / text_table(stores, segment)).to_pylist()
        languages |= {row["key"]: row["language"] for row in rows}
    assert set(languages.values()) >= {"en", None}
    for subset in SUBSETS[:2]:
        for row in rows_of(crawled, subset):
            page = pages[row["url"]]
            assert row["content_mime_detected"] == page["mime_detected"]
            assert row["content_charset"] == (page["charset"] and page["charset"].upper())
            assert row["fetch_redirect"] == page["redirect_url"]
            language = languages.get(page["key"]) if subset == "warc" else None
            assert row["content_languages"] == ("eng" if language == "en" else None)


def test_requests_for_a_record_find_exactly_that_record_and_its_text(crawled: Config) -> None:
    root = Path(crawled.dfs_primary)
    with_text = 0
    for row in rows_of(crawled, "warc"):
        response, text = (cut(root, row, kind) for kind in ("warc", "wet"))
        assert response is not None
        if text is None:
            assert [row[name] for name in OWN] == [None] * 3
            continue
        with_text += 1
        header = text.rec_headers.get_header
        assert text.rec_type == "conversion"
        assert header("WARC-Refers-To") == response.rec_headers.get_header("WARC-Record-ID")
        assert header("WARC-Target-URI") == row["url"]
        assert header("WARC-Date") == response.rec_headers.get_header("WARC-Date")
        assert header("WARC-Identified-Content-Language") == row["content_languages"]
        assert header("Content-Type") == "text/plain"
        digest = base64.b32encode(hashlib.sha1(text.content).digest()).decode()
        assert header("WARC-Block-Digest") == f"sha1:{digest}"
    assert with_text > 10


def cut(root: Path, row: dict[str, Any], kind: str) -> Any:
    """The one record at an offset, of a length."""
    name, offset, length = (
        row[f"{kind}_{what}"] for what in ("filename", "record_offset", "record_length")
    )
    if name is None:
        return None
    data = (root / name).read_bytes()[offset : offset + length]
    found = []
    for record in ArchiveIterator(BytesIO(data)):
        record.content = record.content_stream().read()
        found.append(record)
    assert len(found) == 1
    return found[0]


def test_each_warc_file_has_a_wet_file_that_warcio_reads_with_right_digests(
    crawled: Config,
) -> None:
    root, wet = Path(crawled.dfs_primary), folder_of(crawled, "cc-wet")
    stores = open_stores(crawled)
    texts: dict[bytes, str] = {}
    for segment in stores.crawl.segments():
        rows = pq.read_table(root / text_table(stores, segment)).to_pylist()
        texts |= {row["key"]: row["text"] for row in rows if row["text"]}
    found = {}
    for path in root.glob("crawl/*/[!.]*/*.warc.gz"):
        name = f"{path.parent.parent.name}/{path.parent.name}/{path.name.removesuffix('.warc.gz')}.warc.wet.gz"
        first, *rest = records(wet / name)
        assert first[0].rec_type == "warcinfo"
        assert {record.rec_type for record, *_ in rest} <= {"conversion"}
        for record, *_ in rest:
            url = record.rec_headers.get_header("WARC-Target-URI")
            found[hashlib.sha1(url.encode()).digest()] = record.content.decode()
    assert found == texts
    assert len(list(wet.glob("*/*/*.wet.gz"))) == len(list(root.glob("crawl/*/[!.]*/*.warc.gz")))


def test_rows_are_in_order_within_and_over_parts(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, rows in (("GROUP_ROWS", 7), ("PART_ROWS", 14)):
        monkeypatch.setattr(index, name, rows)
    report = make_index(stores, label="small")
    folder = Path(stores.config.dfs_primary) / report.path
    for subset in SUBSETS:
        paths = sorted((folder / f"subset={subset}").iterdir())
        assert [path.name for path in paths] == [
            f"part-{number:05d}.gz.parquet" for number in range(len(paths))
        ]
        keys = [
            key
            for path in paths
            for key in pq.read_table(path, columns=["url_surtkey"])[0].to_pylist()
        ]
        assert keys == sorted(keys, key=str.encode)
        assert len(keys) == report.counts[subset]
        files = [pq.ParquetFile(path).metadata for path in paths]
        groups = [file.row_group(number) for file in files for number in range(file.num_row_groups)]
        assert {group.column(0).compression for group in groups} == {"GZIP"}
        assert max(group.num_rows for group in groups) <= 7
    assert len(list((folder / "subset=warc").iterdir())) > 1


def test_a_row_group_has_no_more_bytes_than_rows_of_captures_may(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "GROUP_BYTES", 4000)
    report = make_index(stores, label="small")
    path = Path(stores.config.dfs_primary) / report.path / "subset=warc" / "part-00000.gz.parquet"
    file = pq.ParquetFile(path)
    rows = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    assert max(rows) < sum(rows) / 2
    assert all(file.read_row_group(number).nbytes < 20_000 for number in range(file.num_row_groups))


QUESTIONS = {
    "by partition": ("select crawl, subset, count(*) as n from ccindex group by crawl, subset", 3),
    "by status": (
        "select fetch_status, count(*) as n from ccindex where fetch_status = 404 group by all",
        1,
    ),
    "a host's records": (
        "select url, warc_filename from ccindex where url_host_name = '127.0.1.1'",
        10,
    ),
    "a language's records": (
        "select url from ccindex where subset = 'warc' and content_languages like '%eng%'",
        5,
    ),
    "types": (
        "select content_mime_type, sum(warc_record_length) from ccindex where subset = 'warc' group by all",
        1,
    ),
    "home pages": (
        "select url from ccindex where subset = 'warc' and url_path = '/' and url_query is null",
        3,
    ),
    "robots.txt": (
        "select url from ccindex where subset = 'robotstxt' and url_path = '/robots.txt'",
        3,
    ),
    "texts without markup": (
        "select wet_filename, wet_record_offset from ccindex where wet_filename is not null",
        10,
    ),
}
"""What Common Crawl's users ask, each with how many rows there are at least."""


def asking(config: Config) -> duckdb.DuckDBPyConnection:
    """A connection with the index as users have it: partitions are columns."""
    connection = duckdb.connect()
    files = f"{config.dfs_primary}/cc-index/*/*/*.parquet"
    connection.execute(
        f"create view ccindex as select * from read_parquet('{files}', hive_partitioning=true)"
    )
    return connection


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_in_sql_are_answered(crawled: Config, question: str) -> None:
    query, least = QUESTIONS[question]
    assert len(asking(crawled).execute(query).fetchall()) >= least


def test_common_crawls_own_queries_run_as_they_are(crawled: Config, testdata: Path) -> None:
    """14 of 27: the others use what only Presto has."""
    files = sorted((testdata / "ccindex").glob("*.sql"))
    if not files:
        pytest.skip("ccindex is not there: it is third-party data, not part of the project")
    connection = duckdb.connect()
    connection.execute("create schema ccindex")
    connection.execute("create table ccindex.alexa_top_1m (site varchar, rank int, domain varchar)")
    source = f"read_parquet('{crawled.dfs_primary}/cc-index/*/*/*.parquet', hive_partitioning=true)"
    connection.execute(f"create view ccindex.ccindex as select * from {source}")
    failed = []
    for file in files:
        try:
            for query in filter(str.strip, file.read_text().split(";")):
                connection.execute(query)
        except duckdb.Error:
            failed.append(file.name)
    assert len(files) - len(failed) >= 14, failed


def test_hosts_and_urls_of_every_kind_are_divided() -> None:
    urls = (
        *(
            "https://www.example.co.uk/a?b=c&d",
            "http://a.b.c.d.e.example.com:8080/",
            "http://me.github.io/x/",
        ),
        *(
            "http://192.0.2.1:8000/?q",
            "http://[2001:db8::1]:81/x",
            "http://[2001:db8::1]/",
            "http://localhost/a",
        ),
        *(
            "https://xn--bcher-kva.example.de/%7Ex",
            "http://co.uk/",
            "http://x.y.internal/a?x=http://y.org/?z:1",
        ),
    )
    rows = [dict.fromkeys(CAPTURE_SCHEMA.names) for _ in urls]
    for row, url in zip(rows, urls, strict=True):
        host = re.sub(r":[0-9]+$", "", url.split("/")[2])
        needed = {
            "fetch_time": datetime(2026, 1, 1, tzinfo=UTC),
            "fetch_status": 200,
            "warc_filename": "f",
        }
        places = {"warc_record_offset": 0, "warc_record_length": 1, "warc_segment": "1/a"}
        row |= {
            "url": url,
            "host": host,
            "url_surtkey": surt(url),
            "subset": "warc",
            **needed,
            **places,
        }
    found = index_rows(pa.RecordBatch.from_pylist(rows, CAPTURE_SCHEMA)).to_pylist()
    for url, row in zip(urls, found, strict=True):
        for name, value in of_url(url).items():
            assert row[name] == value, (url, name)


def test_languages_have_three_letters() -> None:
    assert len(THREE_LETTERS) > 180
    assert all(len(one) == 2 and len(other) == 3 for one, other in THREE_LETTERS.items())
    assert [three_letters(code) for code in ("en", "de", "zh", "deu", "xx", None)] == [
        *("eng", "deu", "zho", "deu"), *(None, None)
    ]  # fmt: skip


def test_only_the_iterations_that_are_named(stores: Stores) -> None:
    first, second, _ = stores.crawl.folders()
    one = make_index(stores, label="one", folders=[first])
    both = make_index(stores, label="both", folders=[f"{first}..{second}"])
    segments = {row["warc_segment"].split("/")[0] for row in pq.read_table(
        Path(stores.config.dfs_primary) / one.path / "subset=warc" / "part-00000.gz.parquet").to_pylist()}  # fmt: skip
    assert segments == {first}
    assert one.counts["warc"] < both.counts["warc"] == len(rows_of_label(stores, "both"))
    wet = make_wet(stores, label="one", folders=[first])
    assert 0 < wet.counts["records"] <= one.counts["warc"]


def rows_of_label(stores: Stores, label: str) -> list[dict[str, Any]]:
    folder = (
        Path(stores.config.dfs_primary) / "cc-index" / f"crawl={stores.config.crawl.name}-{label}"
    )
    return [
        row
        for path in (folder / "subset=warc").iterdir()
        for row in pq.ParquetFile(path).read().to_pylist()
    ]


def test_pages_that_were_dropped_are_left_out(stores: Stores) -> None:
    url = next(row["url"] for row in rows_of(stores.config, "warc") if row["wet_filename"])
    places = {one.path for one in drop_pages(stores, [url]).places}
    assert {path.split("/")[0] for path in places} >= {"cc-index", "cc-wet"}
    with pytest.raises(OutputConflictError, match="move it away"):
        make_index(stores)
    make_wet(stores, label="without")
    make_index(stores, label="without")
    assert url not in {row["url"] for row in rows_of_label(stores, "without")}
    folder = (
        Path(stores.config.dfs_primary) / "cc-wet" / f"crawl={stores.config.crawl.name}-without"
    )
    assert not [path for path in folder.rglob("*.wet.gz") for record, *_ in records(path)
                if record.rec_headers.get_header("WARC-Target-URI") == url]  # fmt: skip


def test_an_index_without_wet_files_has_no_places_in_them(stores: Stores) -> None:
    make_index(stores, label="alone")
    rows = rows_of_label(stores, "alone")
    assert rows
    assert {row[name] for row in rows for name in OWN} == {None}


def test_all_visible_text_and_texts_that_were_cut(stores: Stores) -> None:
    config = replace(stores.config, commoncrawl=CommonCrawlConfig(wet_text="all"))
    config = replace(config, text=replace(config.text, max_chars=60))
    make_wet(open_stores(config), label="all")
    folder = Path(config.dfs_primary) / "cc-wet" / f"crawl={config.crawl.name}-all"
    found = [
        record
        for path in folder.rglob("*.wet.gz")
        for record, *_ in records(path)
        if record.rec_type[0] == "c"
    ]
    cut_ones = [one for one in found if one.rec_headers.get_header("WARC-Truncated") == "length"]
    assert cut_ones
    assert {len(one.content.decode()) for one in cut_ones} == {60}
    assert all(len(one.content.decode()) < 60 for one in found if one not in cut_ones)


def test_texts_beyond_32_bits_go_to_a_further_wet_file(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make_wet(stores, label="whole")
    monkeypatch.setattr(wet, "MOST_WET_BYTES", 3000)
    parts = make_wet(stores, label="parts")
    assert parts.counts == whole.counts
    make_index(stores, label="parts")
    root = Path(stores.config.dfs_primary)
    paths = list((root / parts.path).rglob("*.wet.gz"))
    assert [path for path in paths if path.name.endswith(".part-2.warc.wet.gz")]
    kinds = {path: [record.rec_type for record, *_ in records(path)] for path in paths}
    assert all(
        kinds[path] == ["warcinfo", "conversion"] for path in paths if path.stat().st_size > 3000
    )
    assert {of_file[0] for of_file in kinds.values()} == {"warcinfo"}
    rows = [row for row in rows_of_label(stores, "parts") if row["wet_filename"]]
    assert len(rows) == parts.counts["records"]
    for row in rows:
        response, text = (cut(root, row, kind) for kind in ("warc", "wet"))
        assert text.rec_headers.get_header("WARC-Refers-To") == response.rec_headers.get_header(
            "WARC-Record-ID"
        )


@pytest.mark.parametrize("before", [0, 1_000, 30_000])
def test_the_id_of_a_record_is_found_behind_long_fields(before: int) -> None:
    """Few bytes of a page are unpacked first."""
    head = f"WARC/1.1\r\nWARC-Target-URI: http://h/{'x' * before}\r\nWARC-Record-ID: <urn:uuid:1>\r\n\r\n"
    data = gzip.compress(head.encode() + random.Random(1).randbytes(100_000))
    assert wet._record_id(WantedRecord(0, "x.warc.gz", 0, len(data)), data) == "<urn:uuid:1>"


def test_places_of_an_older_version_are_read(stores: Stores) -> None:
    expected = {
        row["url"]: [row[name] for name in OWN[1:]] for row in rows_of(stores.config, "warc")
    }
    report = make_wet(stores, label="old")
    for path in (Path(stores.config.dfs_primary) / report.path).rglob("places.parquet"):
        pq.write_table(pq.read_table(path).drop(["wet_part"]), path)
    make_index(stores, label="old")
    assert {
        row["url"]: [row[name] for name in OWN[1:]] for row in rows_of_label(stores, "old")
    } == expected


def test_an_offset_beyond_32_bits_is_an_error_before_any_work(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "MOST_OFFSET", 2000)
    with pytest.raises(InputError, match=r"has records beyond byte 2000 .*--folders"):
        make_index(stores, label="large")
    assert not [
        path for path in Path(stores.config.dfs_primary).glob("cc-index/*") if "large" in path.name
    ]


def test_an_offset_of_robots_txt_counts_too(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = max(row["warc_record_offset"] for row in rows_of(stores.config, "robotstxt"))
    found = [SegmentCaptures(stores, segment).last_offset() for segment in stores.crawl.segments()]
    offsets = [
        row["warc_record_offset"] for subset in SUBSETS for row in rows_of(stores.config, subset)
    ]
    assert max(found) == max(offsets) >= last
    monkeypatch.setattr(SegmentReader, "pages", lambda *_, **__: iter(()))
    monkeypatch.setattr(index, "MOST_OFFSET", last - 1)
    with pytest.raises(InputError, match="has records beyond byte"):
        make_index(stores, label="large")


def killed(config: Config, step: str, kind: str) -> None:
    os.environ[KILL_VARIABLE] = step
    {"wet": make_wet, "index": make_index}[kind](open_stores(config), label="killed")


@pytest.mark.parametrize(
    "step", ["commoncrawl.written", pytest.param("commoncrawl.renamed", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kind", ["wet", "index"])
def test_killed_at_any_step_and_run_again_the_bytes_are_the_same(
    stores: Stores, kind: str, step: str
) -> None:
    make = {"wet": make_wet, "index": make_index}[kind]
    make(stores, label="whole")
    assert run_forked(killed, stores.config, step, kind) == -signal.SIGKILL
    assert make(stores, label="killed").complete_already is (step == "commoncrawl.renamed")
    root = Path(stores.config.dfs_primary) / f"cc-{kind}"
    whole, again = (
        root / f"crawl={stores.config.crawl.name}-{name}" for name in ("whole", "killed")
    )
    files = [
        path.relative_to(whole)
        for path in whole.rglob("*")
        if path.is_file() and path.name != "inputs"
    ]
    assert files
    assert all((whole / path).read_bytes() == (again / path).read_bytes() for path in files)
    assert not list(root.glob(".*"))


def killed_midway(config: Config) -> None:
    """End like a killed process once all captures are sorted and the first are to be written."""
    pytest.MonkeyPatch().setattr(
        index, "index_rows", lambda _: os.kill(os.getpid(), signal.SIGKILL)
    )
    make_index(open_stores(config), label="midway")


def test_killed_while_it_writes_it_leaves_nothing_behind_once_it_ran_again(stores: Stores) -> None:
    root = Path(stores.config.dfs_primary)
    before = set(root.rglob(".*"))
    assert run_forked(killed_midway, stores.config) == -signal.SIGKILL
    assert not make_index(stores, label="midway").complete_already
    assert set(root.rglob(".*")) == before
    assert not list(Path(stores.config.scratch.directory).glob("work-*"))


def test_made_again_nothing_is_made(crawled: Config) -> None:
    report = stages.make_output(open_stores(crawled), output="commoncrawl")
    assert report["complete_already"] == ["wet", "index"]
    assert report["rows"].keys() == {"records", *SUBSETS}
    assert COMMONCRAWL_OUTPUT.check(open_stores(crawled), full=True) == []


@pytest.mark.slow
def test_in_an_object_store_the_files_are_the_same(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(stores.config.dfs_primary)
    with s3_server() as server:
        prefix = "copied"
        remote = server.store(prefix)
        for path in root.rglob("*"):
            if path.is_file() and path.relative_to(root).parts[0] in ("crawl", "text"):
                remote.upload(path, str(path.relative_to(root)))
        for make in (make_wet, make_index):
            local = make(stores, label="same")
            assert make(stores_on(remote, stores.config), label="same") == local
            files = [
                path
                for path in (root / local.path).rglob("*")
                if path.is_file() and path.name != "inputs"
            ]
            assert all(
                remote.read_bytes(str(path.relative_to(root))) == path.read_bytes()
                for path in files
            )
        for name, value in credential_variables().items():
            monkeypatch.setenv(name, value)
        [block] = [
            one
            for one in fences((ROOT / "docs" / "field-tools.md").read_text(), "python")
            if "S3File" in one
        ]
        place = f"{BUCKET}/{prefix}/cc-index"
        found: dict[str, Any] = {}
        exec(
            block.replace("https://s3.example.org", server.address).replace(
                "bucket/crawls/cc-index", place
            ),
            found,
        )
        assert found["ccindex"].count_rows() == sum(local.counts.values())
    assert {f"{subset} " for subset in SUBSETS} <= set(
        re.findall(r"[a-z]+ ", capsys.readouterr().out)
    )


def test_each_name_of_commoncrawl_make_has_a_maker() -> None:
    assert set(MAKERS) == set(COMMONCRAWL_MADE)
