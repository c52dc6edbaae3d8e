"""Injecting seeds: one folder has the seeds of all nodes, in the form of a segment's outlinks."""

import hashlib
import json
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Self

from crawl_lib.config import Config, FetchConfig
from crawl_lib.crawldir import CrawlDirectory, FileName, InboxManifest, Scopes
from crawl_lib.dataclass import dataclass
from crawl_lib.dfsfiles import write_json_bytes
from crawl_lib.durable import reached
from crawl_lib.errors import StoppedError, StorageError, TargetExistsError
from crawl_lib.frontier import host_of_line
from crawl_lib.sealed import MANIFEST_FILE, SEALED_VERSION
from crawl_lib.seeds.check import set_damaged_aside
from crawl_lib.seeds.contact import require_contact
from crawl_lib.seeds.lines import Seeds
from crawl_lib.stopping import Progress, Work
from crawl_lib.storage import Storage
from crawl_lib.urlfiles import OUTLINKS_NAME, OutlinkWriter, ScopeFile, encode_line
from crawl_lib.urls import Owners, host_of

DIGEST_VERSION = 1


@dataclass(frozen=True)
class Division:
    """The nodes that share URLs. `routing`: `host`: a URL goes to the owner of its host; `local`: nodes take turns."""

    nodes: Sequence[str]
    routing: str

    @classmethod
    def of(cls, config: Config) -> Self:
        """Build the division of a config."""
        return cls(config.servers, config.frontier.routing)


def inject(
    crawl: CrawlDirectory,
    run_id: str,
    seeds: Seeds,
    division: Division,
    *,
    fetch: FetchConfig | None = None,
    work: Work | None = None,
) -> InboxManifest:
    """Leave seeds in `<crawl>/seeds/<digest>/`: `outlinks` (a part per node), `scope` (hosts), `manifest.json`.

    `fetch`: seeds of other people's sites need its `contact`; None: these seeds need no contact. The folder appears by
    one rename. A second run with the same run id and the same seeds finds the complete folder, and returns its
    manifest, also if both run at the same time. A damaged folder is put aside and replaced.
    Returns the manifest; its other fields are digest, seeds (counts and refusals) and run_id.
    Raises InputError (seeds cannot be read, or all are refused), ConfigError (no contact), StorageError, or, once
    `work` is to stop, StoppedError: then nothing is left.
    """
    digest = hashlib.sha1(json.dumps([DIGEST_VERSION, run_id]).encode())
    with _spread(division, work) as spread:
        for seed in seeds if fetch is None else require_contact(seeds, fetch):
            line, host = encode_line(seed), host_of(seed.url)
            digest.update(line + b"\n")
            spread.hosts.add(host)
            spread.add(host, line)
        seeds.require_some()
        set_damaged_aside(crawl, digest.hexdigest())
        report = {
            name: value
            for name, value in vars(seeds.report).items()
            if value or name != "rule_errors"
        }
        facts = {"digest": digest.hexdigest(), "run_id": run_id, "seeds": report}
        return _publish(crawl, digest.hexdigest(), FileName.SEEDS, spread, facts)


def hand_over(
    crawl: CrawlDirectory,
    name: str,
    lines: Iterable[bytes],
    division: Division,
    *,
    facts: dict[str, Any],
    scope: Iterable[str] | None = (),
    more: Mapping[str, Callable[[], bytes]] | None = None,
) -> InboxManifest:
    """Leave outlink lines for the nodes, in the form of seeds.

    Return the manifest.

    `name`: the folder's; an existing folder stays as it is. `scope`: hosts that come into the scope by this folder
    only; None: the folder is a list, and lists have no scope. `facts`: the manifest's fields besides the counts.
    `more`: further files of the folder, made once the lines are read; their digests are `files` in the manifest. Raises
    StorageError.
    """
    kind = FileName.LISTS if scope is None else FileName.SEEDS
    if crawl.storage.exists(crawl.inbox.path(name, kind)):
        crawl.storage.secure(crawl.inbox.path(name, kind))
        return crawl.inbox.manifest(name, kind)
    with _spread(division) as spread:
        for line in lines:
            spread.add(host_of_line(line[: line.find(b"\t")]).decode(), line)
        spread.hosts.update(scope or ())
        spread.more.update(more or {})
        facts = facts if kind == FileName.LISTS else {"digest": name, "seeds": {}, **facts}
        return _publish(crawl, name, kind, spread, facts)


@dataclass
class _Spread:
    """Lines divided among the nodes: a file for each, in scratch room. `hosts`: of the scope; `more`: further files."""

    division: Division
    work: Work
    files: Sequence[BinaryIO]
    hosts: set[str] = field(default_factory=set)
    more: dict[str, Callable[[], bytes]] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        self._owners = Owners(self.division.nodes)

    @cached_property
    def written(self) -> Progress:
        """Progress of writing the lines for their nodes, when finished."""
        return Progress(self.work, "seeds.write", self.count, "seeds")

    def add(self, host: str, line: bytes) -> None:
        """Give an outlink line to its node.

        The node is the host's owner, or with local routing the next node in turn.
        """
        is_local = self.division.routing == "local"
        self.files[self.count % len(self.files) if is_local else self._owners.index(host)].write(
            line + b"\n"
        )
        self.count += 1

    def lines(self, file: BinaryIO) -> Iterator[bytes]:
        """Read the lines of a node's file again."""
        file.seek(0)
        for line in file:
            self.written.add(1)
            yield line[:-1]


@contextmanager
def _spread(division: Division, work: Work | None = None) -> Iterator[_Spread]:
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="krake-inject-"))
        files = [
            stack.enter_context(Path(scratch, str(n)).open("w+b"))
            for n in range(len(division.nodes))
        ]
        yield _Spread(division, work or Work(), files)


def _publish(
    crawl: CrawlDirectory, name: str, kind: str, spread: _Spread, facts: dict[str, Any]
) -> InboxManifest:
    """Make the folder, unless it exists; return its manifest."""
    storage, folder = crawl.storage, crawl.inbox.path(name, kind)
    if not storage.exists(folder):
        hidden = crawl.inbox.path(f".{name}-{uuid.uuid4().hex}", kind)
        try:
            _write(storage, hidden, kind, spread, facts)
        except StoppedError:
            storage.delete(hidden)
            raise
        reached("inject.written")
        try:
            storage.rename(hidden, folder)
        except StorageError as error:
            # Another inject of these seeds was faster, or the answer to our own rename was lost: the folder decides.
            if not isinstance(error, TargetExistsError) and not storage.exists(
                f"{folder}/{MANIFEST_FILE}"
            ):
                raise
            storage.delete(hidden)
        reached("inject.renamed")
    storage.secure(folder)
    return crawl.inbox.manifest(name, kind)


def _write(
    storage: Storage, hidden: str, kind: str, spread: _Spread, facts: dict[str, Any]
) -> None:
    storage.make_dirs(hidden)
    with storage.open_write(f"{hidden}/{OUTLINKS_NAME}") as file:
        writer = OutlinkWriter(file)
        for node, part in zip(spread.division.nodes, spread.files, strict=True):
            writer.add_part(node, spread.lines(part))
    if kind == FileName.SEEDS:
        scope = ScopeFile.data_of(spread.hosts)
        storage.write_bytes(f"{hidden}/{FileName.SCOPE}", scope)
        facts = {**facts, Scopes.DIGEST: Scopes.digest(scope)}
    files = {name: make() for name, make in spread.more.items()}
    for name, data in files.items():
        storage.write_bytes(f"{hidden}/{name}", data)
    if files:
        facts = {
            **facts,
            "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        }
    manifest = {
        **facts,
        "format_version": SEALED_VERSION,
        "accepted": spread.count,
        "routing": spread.division.routing,
        "nodes": list(spread.division.nodes),
        "outlinks": writer.to_mapping(),
    }
    storage.write_bytes(f"{hidden}/{MANIFEST_FILE}", write_json_bytes(manifest))
