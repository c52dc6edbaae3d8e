"""Injecting seeds: one folder that holds them for their nodes, in the form of a segment's outlinks."""

from __future__ import annotations

import hashlib
import json
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO

from crawl_lib.config import FetchConfig, UrlsConfig
from crawl_lib.crawldir import SCOPE_DIGEST, SCOPE_NAME, scope_digest
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError, StoppedError, StorageError, TargetExistsError
from crawl_lib.frontier import OutlinkWriter, encode_line, host_of_line
from crawl_lib.records import QueuedUrl
from crawl_lib.seeds.contact import require_contact
from crawl_lib.seeds.lines import Seeds, parse_seeds
from crawl_lib.stopping import until_stopped
from crawl_lib.storage import Storage
from crawl_lib.urls import Owners, UrlFilter, host_of, scope_bytes

SEEDS_FOLDER = "seeds"
FORMAT_VERSION = 1


def inject(
    storage: Storage,
    crawl_dir: str,
    run_id: str,
    seeds: str | Iterable[QueuedUrl],
    *,
    nodes: Sequence[str],
    routing: str,
    urls_config: UrlsConfig,
    fetch_config: FetchConfig | None = None,
    below: Path | None = None,
    stop: Event | None = None,
) -> dict[str, Any]:
    """Leave seeds in `<crawl_dir>/seeds/<digest>/`: `outlinks` (a part per node), `scope` (hosts), `manifest.json`.

    `seeds`: as `parse_seeds` takes them, with `below`, or ready URLs. `fetch_config`: whose `contact` seeds of other
    people's sites need; None: they need none. `routing`: `host`: each goes to the owner of its host;
    `local`: spread evenly, one after the other. The folder is there all at once. Run again with the same run and the
    same seeds, it is found complete and its manifest is returned, also if two do so at the same time.
    Returns the manifest: digest, seeds (counts and refusals), outlinks (offset, length, count by node), run_id.
    Raises InputError (seeds cannot be read, or none of them used), ConfigError (no contact), StorageError, or, once
    `stop` is set, StoppedError: then nothing is left.
    """
    if isinstance(seeds, str):
        rules = UrlFilter(urls_config, ())
        longest = urls_config.max_length_chars
        seeds = parse_seeds(seeds, below=below, max_length_chars=longest, url_filter=rules, stop=stop)
    with tempfile.TemporaryDirectory(prefix="krake-inject-") as scratch:
        spread = _Spread(Path(scratch), nodes, routing, stop)
        try:
            checked: Iterable[QueuedUrl] = seeds
            if fetch_config is not None and isinstance(seeds, Seeds):
                checked = require_contact(seeds, fetch_config)
            digest = spread.fill(run_id, checked)
            if isinstance(seeds, Seeds):
                seeds.require_some()
        finally:
            spread.close()
        base = f"{crawl_dir}/{SEEDS_FOLDER}" if crawl_dir else SEEDS_FOLDER
        folder = f"{base}/{digest}"
        if not storage.exists(folder):
            _publish(storage, folder, f"{base}/.{digest}-{uuid.uuid4().hex}", spread, _facts(digest, run_id, seeds))
    storage.secure(folder)
    return _read_manifest(storage, f"{folder}/manifest.json")


def hand_over(
    storage: Storage,
    crawl_dir: str,
    digest: str,
    lines: Iterable[bytes],
    *,
    scope: Iterable[str],
    nodes: Sequence[str],
    routing: str,
    facts: dict[str, Any],
) -> dict[str, Any]:
    """Leave outlink lines of a node that takes part no more for the others, as seeds are left; returns the manifest.

    `digest`: the folder's name; if it is there, nothing is done. `scope`: hosts that nothing else brings into the
    scope. `facts`: what the manifest says besides the counts. Raises StorageError.
    """
    folder = f"{crawl_dir}/{SEEDS_FOLDER}/{digest}"
    if not storage.exists(folder):
        with tempfile.TemporaryDirectory(prefix="krake-hand-over-") as scratch:
            spread = _Spread(Path(scratch), nodes, routing)
            try:
                for line in lines:
                    spread.add(host_of_line(line[: line.find(b"\t")]).decode(), line)
            finally:
                spread.close()
            spread.hosts = set(scope)
            facts = {"format_version": FORMAT_VERSION, "digest": digest, **facts}
            _publish(storage, folder, f"{crawl_dir}/{SEEDS_FOLDER}/.{digest}-{uuid.uuid4().hex}", spread, facts)
    storage.secure(folder)
    return _read_manifest(storage, f"{folder}/manifest.json")


def _facts(digest: str, run_id: str, seeds: Iterable[QueuedUrl]) -> dict[str, Any]:
    report = seeds.report.to_mapping() if isinstance(seeds, Seeds) else {}
    return {"format_version": FORMAT_VERSION, "digest": digest, "run_id": run_id, "seeds": report}


class _Spread:
    """Seeds divided among the nodes: a file of lines for each, in scratch room."""

    def __init__(self, scratch: Path, nodes: Sequence[str], routing: str, stop: Event | None = None) -> None:
        self.nodes = list(nodes)
        self.stop = stop
        self.routing = routing
        self.hosts: set[str] = set()
        self._owners = Owners(self.nodes)
        self.count = 0
        self._paths = [scratch / str(index) for index in range(len(self.nodes))]
        self._files: list[BinaryIO] = [path.open("wb") for path in self._paths]

    def fill(self, run_id: str, seeds: Iterable[QueuedUrl]) -> str:
        """Divide the seeds; returns the digest over the run and all lines in order."""
        digest = hashlib.sha1(json.dumps([FORMAT_VERSION, run_id]).encode())
        for seed in seeds:
            line = encode_line(seed)
            digest.update(line + b"\n")
            host = host_of(seed.url)
            self.hosts.add(host)
            self.add(host, line)
        return digest.hexdigest()

    def add(self, host: str, line: bytes) -> None:
        """Give an outlink line to the host's owner, or, with local routing, to the node whose turn it is."""
        index = self.count % len(self.nodes) if self.routing == "local" else self._owners.index(host)
        self._files[index].write(line + b"\n")
        self.count += 1

    def close(self) -> None:
        """Close the files, so that they may be read."""
        for file in self._files:
            file.close()

    def parts(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Each node with its lines."""
        for node, path in zip(self.nodes, self._paths, strict=True):
            yield node, until_stopped(_lines(path), self.stop)


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        for line in file:
            yield line[:-1]


def _publish(storage: Storage, folder: str, hidden: str, spread: _Spread, facts: dict[str, Any]) -> None:
    try:
        _write(storage, hidden, spread, facts)
    except StoppedError:
        storage.delete(hidden)
        raise
    reached("inject.written")
    try:
        storage.rename(hidden, folder)
    except StorageError as error:
        # Another inject of the same was faster, or the answer to our own rename was lost: what is there decides.
        if not isinstance(error, TargetExistsError) and not storage.exists(f"{folder}/manifest.json"):
            raise
        storage.delete(hidden)
    reached("inject.renamed")


def _write(storage: Storage, hidden: str, spread: _Spread, facts: dict[str, Any]) -> None:
    storage.make_dirs(hidden)
    with storage.open_write(f"{hidden}/outlinks") as file:
        writer = OutlinkWriter(file)
        for node, lines in spread.parts():
            writer.add_part(node, lines)
    scope = scope_bytes(spread.hosts)
    storage.write_bytes(f"{hidden}/{SCOPE_NAME}", scope)
    manifest = {
        **facts,
        SCOPE_DIGEST: scope_digest(scope),
        "accepted": spread.count,
        "routing": spread.routing,
        "nodes": spread.nodes,
        "outlinks": writer.to_mapping(),
    }
    text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    storage.write_bytes(f"{hidden}/manifest.json", text.encode())


def _read_manifest(storage: Storage, path: str) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(storage.read_bytes(path))
    except ValueError as error:
        raise DamagedFileError(f"{path}: is not JSON: {error}") from error
    return value
