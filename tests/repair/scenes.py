"""Small crawls with every kind of file that Krake writes: settled, and killed in the middle of a step."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import yaml

from crawl_lib.config import Config, load_config
from crawl_lib.crawldb import newest_version
from crawl_lib.frontier import Queue
from crawl_lib.keys import interval
from crawl_lib.realtime.documents import Document, Request, encoded, request_bytes
from crawl_lib.realtime.pages import Finished, Wish, part_of
from crawl_lib.realtime.store import connect_pages
from crawl_lib.records import QueuedUrl
from crawl_lib.sealed import sealed_json, unsealed
from crawl_lib.stores import open_stores
from crawl_lib.urlfiles import encode_line
from crawl_lib.urls import host_of, key_of
from demo import Serving, SynthWeb
from tests.cli.conftest import Krake
from tests.e2e.crawl import Result
from tests.realtime.test_collect import fetch, submitted
from tests.repair.killed import run_killed
from tests.scopes import scope_of

LABEL = "e"
SALVAGE = ("fsck", "--repair", "--only", "segments")
WORDS = ("crawl", "--run-id", "one", "--batch-size", "5")
ROUNDS = 2
WEB = SynthWeb(seed=7, sites=2, pages_per_site=12, specials=False, busy=4)


@dataclass(frozen=True)
class Kind:
    """A kind of file: `pattern` is what its path in a scene looks like; `weight`: how often it is damaged.

    `found`: whether `krake fsck` has to name each damage that changes it; else it may be shown harmless.
    """

    name: str
    pattern: str
    weight: int = 1
    found: bool = False

    def fits(self, path: str) -> bool:
        """Whether a file is of this kind."""
        return re.fullmatch(self.pattern, path) is not None


NODE = r"queue/node-[ab]"
ROUND = r"dfs/crawl/\d+"
SEGMENT = rf"{ROUND}/node-[ab]"
HIDDEN = rf"{ROUND}/\.(new-)?node-[ab]-[^/]+"
SPOOL = rf"{NODE}/spool"
LIVE = rf"{NODE}/live/live-0"
VERSION = r"dfs/crawl/(crawldb|captures|linkdb|linkrank|outlinks|duplicates|terms|index)/\d+"
LIST = r"dfs/crawl/lists/[^/]*"

KINDS = (
    # A node's directory
    Kind("state", f"{NODE}/state", 3),
    Kind("record", rf"{NODE}/state\.krake", 3),
    Kind("data file", rf"{NODE}/\d+", 3),
    Kind("meta", rf"{NODE}/\d+\.meta", 2),
    Kind("take", f"{NODE}/take", 3),
    Kind("leftover", f"{NODE}/leftover", 2),
    Kind("journal", f"{NODE}/intake", 2),
    Kind("files of an intake", rf"{NODE}/new(\.(meta|undecided|claim))?", 2),
    Kind("counts of an intake", rf"{NODE}/new\.hosts"),
    Kind("move", f"{NODE}/move", 2),
    Kind("undecided", f"{NODE}/undecided"),
    Kind("handed on", f"{NODE}/handed_on"),
    Kind("added scope", f"{NODE}/scope_added"),
    Kind("lost", f"{NODE}/lost"),
    Kind("retire", f"{NODE}/retire"),
    Kind("leftover that is put back", rf"{NODE}/put_back(\.meta)?"),
    Kind("files of a rehoming", rf"{NODE}/(rehomed|adopted)(\.\w+)*"),
    Kind("host counts", rf"{NODE}/hostcounts\.sqlite", 2),
    Kind("hosts", rf"{NODE}/hosts/.*"),
    Kind("scope of a take", f"{SPOOL}/scope", 2),
    Kind("closed part", rf"{SPOOL}/[^/]*\.closed\.json", 2),
    Kind("seal of a part", rf"{SPOOL}/[^/]*\.sealed\.json", 2),
    Kind("positions of a part", rf"{SPOOL}/[^/]*\.positions", 2),
    Kind("rows of a part", rf"{SPOOL}/[^/]*\.arrow", 2),
    Kind("lines of a part", rf"{SPOOL}/[^/]*\.(outlinks|cdxj)\.\d+", 2),
    Kind("notes of reading", rf"{SPOOL}/[^/]*\.reading", 2),
    Kind("WARC of a part", rf"{SPOOL}/[^/]*\.warc\.gz"),
    Kind("segment that is built", f"{SPOOL}/segment/.*", 2),
    Kind("copies of a take", f"{SPOOL}/identity/.*"),
    # The real-time service
    Kind("WARC of a part in real time", rf"{LIVE}/(collect/)?spool/[^/]*\.warc\.gz", 3),
    Kind("end of a part in real time", rf"{LIVE}/spool/[^/]*\.rowless\.json", 3),
    Kind("rows of a part in real time", rf"{LIVE}/collect/spool/[^/]*(?<!\.warc\.gz)", 2),
    Kind("log of submissions", rf"{LIVE}/(collect/)?submissions/[^/]*", 2),
    Kind("submissions that are collected", rf"{LIVE}/collect/submissions\.parquet"),
    Kind("note of a collection", rf"{LIVE}/collect/run\.json", 3),
    Kind("segment that is collected", rf"{LIVE}/collect/segment/.*", 2),
    Kind("copies of a collection", rf"{LIVE}/collect/(iteration\.json|scope)"),
    Kind("table of documents", r"keys/\d-pages\.sqlite(-wal|-shm)?", 4),
    # The crawl directory
    Kind("iteration", rf"{ROUND}/iteration\.json", 4),
    Kind("agreed", rf"{ROUND}/agreed-\d+\.json", 3),
    Kind("index", rf"{ROUND}/index\.json", 4),
    Kind("scope", "dfs/crawl/scope/[0-9a-f]{64}", 2),
    Kind("dropped mark", f"{ROUND}/dropped"),
    Kind("manifest", rf"{SEGMENT}/manifest\.json", 10),
    Kind("WARC", rf"{SEGMENT}/[^/]*\.warc\.gz", 2, found=True),
    Kind("pages", rf"{SEGMENT}/pages\.parquet", 4, found=True),
    Kind("links", rf"{SEGMENT}/links\.parquet", 4, found=True),
    Kind("outlinks", rf"{SEGMENT}/outlinks", 2, found=True),
    Kind("index of a segment", rf"{SEGMENT}/index\.cdxj", 2, found=True),
    Kind("copies of a segment", rf"{SEGMENT}/(iteration\.json|scope)", 2, found=True),
    Kind("dropped pages", rf"{SEGMENT}/dropped-\w+"),
    Kind("lost pages", rf"{SEGMENT}/lost\.tsv"),
    Kind("segment that is uploaded", f"{HIDDEN}/.*", 2),
    Kind("damaged segment", rf"{ROUND}/\.damaged-[^/]*/.*"),
    Kind("repair of a segment", rf"{ROUND}/\.swap-[^/]*"),
    Kind("manifest of seeds", r"dfs/crawl/seeds/\w+/manifest\.json", 4),
    Kind("seeds", r"dfs/crawl/seeds/\w+/outlinks"),
    Kind("scope of seeds", r"dfs/crawl/seeds/\w+/scope"),
    Kind("kept scope", r"dfs/crawl/scope/\d+(-[^/]*)?"),
    Kind("started", "dfs/crawl/started/[^/]*", 2),
    Kind("settled", "dfs/crawl/settled/[^/]*/[^/]*", 2),
    Kind("forgotten", "dfs/crawl/forgotten/[^/]*"),
    Kind("index of all", r"dfs/crawl/index\.cdxj"),
    Kind("manifest of a version", rf"{VERSION}/manifest\.json", 4),
    Kind("table of a version", rf"{VERSION}/part-\d+\.parquet", 3, found=True),
    Kind(
        "file of an index",
        rf"{VERSION}/(\w+\.(term|idx|pos|store|fast|fieldnorm)|meta\.json|\.managed\.json)",
        found=True,
    ),
    Kind("table of an index", rf"{VERSION}/(pages|left-out)\.parquet", found=True),
    Kind("deleted pages of an index", rf"{VERSION}/deleted"),
    Kind("manifest of a list", rf"{LIST}/manifest\.json", 3),
    Kind("list", rf"{LIST}/(outlinks|scope)"),
    Kind("what is listed", rf"{LIST}/listed\.parquet"),
    Kind("what key tables lack", r"dfs/crawl/unfilled/[^/]*"),
    Kind("texts", r"dfs/text/\d+/node-a/text-\w+\.parquet", 2),
    # Key tables, exports
    Kind("key table", r"keys/\d\.sqlite(-wal|-shm)?", 10),
    Kind("key table that was broken", r"keys/\d\.sqlite\.damaged-\d+(-wal|-shm)?"),
    Kind(
        "export", "dfs/export/e/(content|offsets|urlmapping|webgraph|webgraph-index)", 4, found=True
    ),
    Kind("table of an export", r"dfs/export/e/[^/]*\.parquet", 3, found=True),
    Kind("inputs of an export", "dfs/export/e/inputs", 2),
    # Nothing is decided by these
    Kind("name of the crawl", rf"({NODE}|dfs/crawl|dfs/export|dfs/text)/_crawl"),
    Kind("lock", rf"{NODE}/lock"),
    Kind("scratch", r"scratch/.*"),
    Kind("progress", rf"{NODE}/progress\.json"),
)
NOT_WRITTEN = r"krake\.yml|queue/node-[ab]/worker-\d\.log"
"""What people wrote, and what only people read."""


def kind_of(path: str) -> Kind | None:
    """The one kind that a file is of."""
    if re.fullmatch(NOT_WRITTEN, path):
        return None
    kinds = [kind for kind in KINDS if kind.fits(path)]
    assert len(kinds) == 1, f"{path} is of {len(kinds)} kinds: see KINDS"
    return kinds[0]


def files_of(directory: Path) -> dict[str, Kind]:
    """Every file of a crawl with its kind, but what Krake does not write or read."""
    names = sorted(
        str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()
    )
    return {name: kind for name in names if (kind := kind_of(name)) is not None}


@dataclass(frozen=True)
class Scene:
    """A crawl. `more`: commands after which all that it waits for is done (it is settled, or the iteration over).
    `order`: of its frontier."""

    name: str
    make: Callable[[Path], None]
    more: tuple[tuple[str, ...], ...]
    order: str = "fifo"


def _run(directory: Path, *words: str, kill_at: str | None = None) -> None:
    words = ("--config", str(directory / "krake.yml"), *words)
    done = run_killed([*words], kill_at, seals=kill_at != "take.leftover")
    assert done.code == (-9 if kill_at else 0), (words, kill_at, done)


def _killed(kill_at: str) -> Callable[[Path], None]:
    return lambda directory: _run(
        directory, *WORDS, "--iterations", str(ROUNDS + 1), kill_at=kill_at
    )


def _settled(directory: Path) -> None:
    """With what people do by hand: pages are dropped and forgotten, the index of all is made."""
    _run(directory, "settle")
    _run(directory, "segment", "drop", dropped_page(directory), "--yes")
    _run(directory, "forget", _pages(_oldest(directory))[0], "--yes")
    _run(directory, "index", "cdxj")


def _nothing_taken(directory: Path) -> None:
    """A run might fetch nothing: of its iteration there are no tables."""
    path = directory / "krake.yml"
    text = path.read_text()
    path.write_text(yaml.safe_dump({**yaml.safe_load(text), "crawl": {"max_pages": 1}}))
    _run(directory, "crawl", "--run-id", "two", "--iterations", "1")
    path.write_text(text)
    assert {file.name for file in _newest(directory).glob("node-a/*")} <= {
        "manifest.json",
        "iteration.json",
        "scope",
        "outlinks",
    }


def dropped_page(directory: Path) -> str:
    """The page that is dropped where one is."""
    return _pages(_newest(directory))[0]


def _pages(folder: Path) -> list[str]:
    """URLs that an iteration found to be there."""
    [table] = folder.glob("node-?/pages.parquet")
    return sorted(row["url"] for row in pq.read_table(table).to_pylist() if row["outcome"] == "ok")


def _agreed_again(directory: Path) -> None:
    """A cleared `inject` has noted the options for the newest iteration; the intake was killed."""
    _killed("intake.chunk.inserted")(directory)
    path = max(directory.glob("dfs/crawl/1*/iteration.json"))
    value = unsealed(path.read_bytes())
    path.with_name("agreed-1.json").write_bytes(sealed_json(value["agreed"]))


def _salvaged(directory: Path) -> None:
    """A segment was made again, its damaged one is kept; the next intake was killed while it moved files."""
    _damage(min(directory.glob("dfs/crawl/1*/node-a/*.warc.gz")))
    _run(directory, *SALVAGE)
    _killed("queue.move.written")(directory)


def _swapping(directory: Path) -> None:
    """A salvage lost pages, and was killed once it had decided on the segment that it made; a repair lost URLs."""
    (directory / "queue/node-a/lost").write_bytes(b"1\n")
    warc = max(directory.glob("dfs/crawl/1*/node-a/*.warc.gz"))
    _damage(warc)
    _run(directory, *SALVAGE, kill_at="repair.swap.decided")


def _damage(warc: Path) -> None:
    """Pages of a WARC file are lost."""
    data = bytearray(warc.read_bytes())
    for share in (3, 7):
        data[len(data) * share // 10] ^= 0xFF
    warc.write_bytes(data)


def _with_second_node(kill_at: str) -> Callable[[Path], None]:
    """A second node came: URLs of its hosts are handed on to it; some URLs are undecided."""

    def make(directory: Path) -> None:
        _run(directory, "settle")
        _with_servers(directory, "node-a", "node-b")
        _undecided(directory)
        shutil.copy(scope_of(_newest(directory)), directory / "queue/node-a/scope_added")
        shutil.copy(
            scope_of(_oldest(directory)), directory / "dfs/crawl/scope" / _newest(directory).name
        )
        _run(directory, *SECOND[0], kill_at=kill_at)

    return make


def _adopted(directory: Path) -> None:
    """Somebody made a queue by hand, of URLs that are known."""
    _run(directory, "settle")
    queue = directory / "queue/node-a"
    urls = [one.url for one in Queue(queue, "node-a")]
    for path in [path for path in queue.iterdir() if path.name.partition(".")[0].isdecimal()]:
        path.unlink()
    (queue / "0").write_text("".join(f"{url}\n" for url in urls))
    (queue / "state").write_text(f"0\n{len(urls)}\n")
    _run(directory, "settle", kill_at="adopt.files_written")


def _emptied(directory: Path) -> None:
    """A key server's table was broken, and a repair was killed once it had made it again, empty."""
    (directory / "keys/1.sqlite").write_bytes(b"no data base at all")
    _run(directory, "fsck", "--repair", kill_at="keys.tables.made")


def _newest(directory: Path) -> Path:
    return max(directory.glob("dfs/crawl/1*"))


def _oldest(directory: Path) -> Path:
    return min(directory.glob("dfs/crawl/1*"))


def _retired(directory: Path) -> None:
    _run(directory, "settle")
    _with_servers(directory, "node-b")
    _run(directory, "nodes", "retire", "node-a", kill_at="retire.decided")
    _undecided(directory)


def _undecided(directory: Path) -> None:
    line = encode_line(QueuedUrl(_pages(_newest(directory))[0])) + b"\n"
    (directory / "queue/node-a/undecided").write_bytes(line)


def _with_servers(directory: Path, *nodes: str) -> None:
    path = directory / "krake.yml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "servers": list(nodes)}))


def _in_real_time(directory: Path) -> None:
    """A collection was killed after it built the segment; a part and a log were closed since."""
    path = directory / "krake.yml"
    given = {
        **yaml.safe_load(path.read_text()),
        "urls": {"scope": "any"},
        "realtime": {"tokens": "tokens.json"},
    }
    path.write_text(yaml.safe_dump(given))
    config, urls = (
        load_config(str(path)),
        [*_pages(_newest(directory)), *_pages(_oldest(directory))],
    )
    _documents(config, urls)
    fetch(config, *urls[:3])
    submitted(config, *urls[:3])
    _run(directory, "realtime", "collect", kill_at="segment.build.manifest")
    fetch(config, *urls[3:], prefix="krake-2000-live-0-0")
    submitted(config, *urls[3:])


def _documents(config: Config, urls: Sequence[str]) -> None:
    for place, name in enumerate(config.key_storage.servers):
        table = connect_pages(config.key_storage, None, name)
        table.ensure()
        own = [
            url for url in urls if interval(key_of(url), len(config.key_storage.servers)) == place
        ]
        table.submit(
            [
                Wish(key_of(url), part_of(host_of(url)), request_bytes(Request(url=url)))
                for url in own
            ]
        )
        documents = [Document(url=url, outcome="ok", final_url=url) for url in own[1:]]
        table.finish([Finished(key_of(one.url), encoded(one), 86_400_000, 1) for one in documents])
        table.close()


ON = (("crawl", "--run-id", "one", "--iterations", str(ROUNDS + 1)), ("settle",))
ON_TABLES = (ON[0], ("crawldb", "update"))
SECOND = (("crawl", "--run-id", "two", "--batch-size", "5"), ("settle",))
SCENES = (
    Scene("settled", _settled, (("settle",),)),
    Scene("nothing taken", _nothing_taken, (("settle",),)),
    Scene("taken", _killed("take.written"), ON),
    Scene("fetched", _killed("take.leftover"), ON),
    Scene("built", _killed("segment.publish.uploaded"), ON),
    Scene("published", _killed("segment.publish.renamed"), ON),
    Scene("intake", _agreed_again, ON),
    Scene("salvaged", _salvaged, ON),
    Scene("started", _killed("start.renamed"), ON),
    Scene("swapping", _swapping, ON),
    Scene("rehomed", _with_second_node("rehome.written"), SECOND),
    Scene("handed on", _with_second_node("take.written"), SECOND),
    Scene("put back", _killed("take.put_back"), ON),
    Scene("adopted", _adopted, (("settle",),)),
    Scene("retired", _retired, (("nodes", "retire", "node-a"), ("settle",))),
    Scene("emptied", _emptied, (("fsck", "--repair"), ("settle",))),
    Scene("tables", lambda directory: None, ON_TABLES, "crawldb"),
    Scene("real time", _in_real_time, (("realtime", "collect"), ("crawldb", "update")), "crawldb"),
    Scene("listed", _killed("take.leftover"), ON_TABLES, "crawldb"),
)


def make_base(directory: Path, web: Serving, order: str) -> None:
    """A crawl of two rounds, exported; URLs wait. With a CrawlDb it has texts, and all tables that are made of it."""
    krake = Krake(directory, lambda words: run_killed(words, None))
    more: dict[str, object] = {
        "urls": {"scope": "hosts", "max_pages_per_host": 1000},
        "batch": {"max_per_host": 2},
    }
    if order == "crawldb":
        more = {
            "urls": {"scope": "hosts"},
            "generate": {"max_per_host": 2},
            "crawldb": {"signature": "text"},
        }
    krake.configure(
        servers=["node-a"],
        key_storage={"servers": ["keys/0.sqlite", "keys/1.sqlite"], "replication": 2},
        frontier={"order": order},
        **more,
    )
    krake.ok("inject", "\n".join(web.seeds), "--run-id", "one")
    krake.ok(*WORDS, "--iterations", str(ROUNDS))
    for words in (["export", "--label", LABEL], ["graph", "link"], ["graph", "finalize"]):
        krake.ok(*words)
    tables = (
        "graph rank",
        "crawldb update",
        "linkdb update",
        "linkdb rank",
        "duplicates mark",
        "duplicates near",
    )
    tables += ("terms update", "index update", "captures update")
    for text in tables if order == "crawldb" else ():
        krake.ok(*text.split())


def make_scene(scene: Scene, base: Path, directory: Path) -> None:
    """One of the crawls, from a copy of the base."""
    shutil.copytree(base, directory)
    scene.make(directory)


def copy_scene(scene: Path, directory: Path) -> None:
    """A copy, whose open moves name the files of the copy."""
    shutil.copytree(scene, directory)
    for move in directory.glob("queue/*/move"):
        value = unsealed(move.read_bytes())
        inodes = {
            (scene / path.relative_to(directory)).stat().st_ino: path.stat().st_ino
            for path in move.parent.rglob("*")
            if path.is_file()
        }
        for step in (step for group in value["groups"] for step in group):
            step[1] = inodes.get(step[1], step[1])
        move.write_bytes(sealed_json(value))


def known(krake: Krake) -> set[str]:
    """URLs that were visited, or are in the CrawlDb, which has what waits, or in a queue."""
    config = load_config(str(krake.file))
    found = set(Result(config).visited())
    if config.order.has_crawldb:
        version = newest_version(open_stores(config))
        for path in version.paths if version else ():
            found.update(
                pq.read_table(krake.directory / "dfs" / path, columns=["url"])
                .column("url")
                .to_pylist()
            )
        return found
    for node in Path(config.queue.local_dir).iterdir():
        found |= {one.url for one in Queue(node, node.name)}
    return found


def links(krake: Krake) -> set[tuple[str, str]]:
    """Each link of a page that was visited, to a URL that can be crawled."""
    result = Result(load_config(str(krake.file)))
    urls = result.url_of_key()
    rows = result.rows("links", ["source", "target_url", "target"])
    return {(urls[row["source"]], row["target_url"]) for row in rows if row["target"] is not None}
