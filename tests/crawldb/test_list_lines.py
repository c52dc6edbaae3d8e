"""The files of a list, compared with a reader and a writer in plain Python that share no code with `generate`."""

from __future__ import annotations

import gzip
import importlib
import json
import random
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from crawl_lib.config import Config
from crawl_lib.rounds import start_iteration
from crawl_lib.segment import DroppedLists
from crawl_lib.stores import open_stores
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.tables import NOW, leave_version, row_of
from tests.crawldb.test_generate import config_of, make
from tests.scoring.test_plugins import plugin

DAY = 86400
METADATA = (None, "", '{"a": "b"}', '{"name": "Zürich \U0001f577", "scoring": {"weight": 0.5}}')
TAKEN_OUT, LOST = "http://h1.example/7?q=%C3%A9", "9/node-0"


def rows_of(choose: random.Random, segment: str) -> list[dict[str, Any]]:
    """Make rows that are due, some of them with a capture in a segment, in a lost one, or an old capture."""
    rows = [row_of(TAKEN_OUT, **capture_of(choose, segment))]
    for number in range(400):
        visited = choose.random() < 0.5
        url = f"http{choose.choice(['', 's'])}://h{choose.randrange(9)}.example{choose.choice(['', ':8080'])}/{number}"
        row = row_of(
            url,
            status=choose.choice(["unfetched", "fetched", "requisite"]),
            depth=choose.randrange(7),
            redirects=choose.randrange(3),
            retries=choose.randrange(3),
            metadata=choose.choice(METADATA),
            **(capture_of(choose, choose.choice([segment, LOST])) if visited else {}),
        )
        rows.append(row)
    return rows


def capture_of(choose: random.Random, segment: str) -> dict[str, Any]:
    time = NOW - choose.choice([1, 90, 91]) * DAY + choose.choice([-0.000001, 0, 0.5])
    return {
        "fetched_time": time,
        "capture_segment": segment,
        "capture_file": choose.choice(["0.warc.gz", 'é".warc.gz']),
        "capture_offset": choose.choice([0, 1 << 40]),
        "capture_time": time,
        "capture_digest": choose.choice([None, bytes(range(20))]),
        "etag": choose.choice([None, "", '"x\\y"', "\x7f"]),
        "last_modified": choose.choice([None, "Mon, 01 Jan 2001 00:00:00 GMT"]),
    }


def plain_line(row: dict[str, Any], name: str, config: Config, segment: str) -> str:
    """Write a line by docs/formats.md."""
    hops = str(row["redirects"])
    if row["status"] == "requisite" and row["depth"]:
        hops += f"E{row['depth']}"
    metadata = row["metadata"] or ""
    if config.scoring.plugins:
        fields = json.loads(metadata or "{}")
        noted = {**fields.pop("scoring", {}), "weight": float(row["depth"])}
        metadata = json.dumps({**fields, "scoring": noted})
    line = [row["url"], "", str(row["depth"]), hops, "h", metadata, str(row["retries"]), "0", name]
    is_recent = row["capture_time"] is not None and row["capture_time"].timestamp() > NOW - 90 * DAY
    if is_recent and row["capture_segment"] == segment and row["url"] != TAKEN_OUT:
        earlier = {
            "segment": segment,
            "file": row["capture_file"],
            "offset": row["capture_offset"],
            "time": row["capture_time"].timestamp(),
            "digest": row["capture_digest"].hex() if row["capture_digest"] else None,
            "etag": row["etag"],
            "last_modified": row["last_modified"],
        }
        line.append(
            json.dumps(
                {field: value for field, value in earlier.items() if value not in {None, ""}}
            )
        )
    return "\t".join(line) + "\n"


def plain_parts(
    rows: list[dict[str, Any]], name: str, config: Config, segment: str
) -> dict[str, str]:
    """Divide the lines, in order of keys, among the nodes."""
    parts = dict.fromkeys(config.servers, "")
    for number, row in enumerate(rows):
        node = config.servers[number % len(config.servers)]
        if config.frontier.routing == "host":
            scores = {
                blake2b(f"{one}\n{row['host']}".encode(), digest_size=8).digest(): one
                for one in config.servers
            }
            node = scores[max(scores)]
        parts[node] += plain_line(row, name, config, segment)
    return parts


@pytest.mark.parametrize("seed", range(6))
def test_a_list_is_what_plain_python_writes(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare the lines of each node, the manifest's places of these lines, and the file of keys, byte by byte."""
    choose = random.Random(seed)
    noting = {
        "columns": ("weight",),
        "before_parsing": staticmethod(lambda page: {"weight": page["depth"]}),
    }
    plugin(monkeypatch, **noting)
    scoring = {"plugins": choose.choice([[], ["mine"]])}
    routing = {"routing": choose.choice(["host", "local"])}
    config = config_of(tmp_path, choose.choice([1, 2, 3]), scoring=scoring, frontier=routing)
    stores = open_stores(config)
    crawl = Crawl(stores)
    folder = start_iteration(
        stores, run_id="run", iteration=1, batch_size=None, clock=lambda: NOW - 2 * DAY
    ).folder
    segment = crawl.segment(int(folder), [Visit(TAKEN_OUT)], config.servers[0])
    file, keys = DroppedLists.encode([row_of(TAKEN_OUT)["key"]])
    (crawl.root / segment / file).write_bytes(keys)
    rows = sorted(rows_of(choose, segment), key=lambda row: row["key"])
    leave_version(stores, 1, rows)
    monkeypatch.setattr(
        importlib.import_module("crawl_lib.crawldb.generate"),
        "LIST_ROWS",
        choose.choice([64, 1000]),
    )
    made = make(config, 2)
    assert made.counts == {"listed": len(rows)}
    at = crawl.root / "lists" / made.list
    data, places = (
        (at / "outlinks").read_bytes(),
        json.loads((at / "manifest.json").read_bytes())["outlinks"],
    )
    for node, text in plain_parts(rows, made.list, config, segment).items():
        part = data[places[node]["offset"] :][: places[node]["length"]]
        assert gzip.decompress(part).decode() == text
        assert places[node]["count"] == text.count("\n")
    listed = pq.read_table(at / "listed.parquet").to_pylist()
    assert listed == [{"key": row["key"], "fetched_time": row["fetched_time"]} for row in rows]
