"""The files that say what an iteration is, from their copies in segments and takes; and nodes that left the crawl."""

from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256

from crawl_lib.crawldir import FileName, Iteration, SettledNotes
from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.frontier import NodeDirectory, Take
from crawl_lib.rounds import NodeLayout
from crawl_lib.sealed import unsealed
from crawl_lib.segment import SegmentReader
from crawl_lib.stores import Stores


def copy_in_segments(
    stores: Stores, folders: Iterable[str], name: str, digest: str = ""
) -> bytes | None:
    """Read a file of an iteration from its copy in a segment.

    Segments that a repair has set aside count too. None: no segment of the folders has an intact copy. `digest`: the
    SHA-256 of the file, "" if unknown. Raises StoppedError.
    """
    for folder in stores.until_stopped(folders):
        entries = stores.storage.list(stores.crawl.at(folder))
        for path in [stores.crawl.at(folder, entry.name) for entry in entries if entry.is_dir]:
            with suppress(DamagedFileError, PathNotFoundError):
                manifest = SegmentReader(stores.storage, path).manifest
                said = {entry.name: entry.sha256 for entry in manifest.files}.get(name, "")
                if said and digest in {"", said} and manifest.folder == folder:
                    data = stores.storage.read_bytes(f"{path}/{name}")
                    if sha256(data).hexdigest() == said:
                        return data
    return None


def copy_in_takes(stores: Stores, folder: str) -> bytes | None:
    """Read `iteration.json` from its copy in an open take's spool.

    None: no take of this machine's nodes has an intact copy.
    """
    for node in stores.config.servers:
        directory = stores.node_dir(node)
        take = Take.readable(directory)
        if take is not None and take.header.folder == folder:
            with suppress(OSError, ValueError, KeyError, TypeError):
                path = NodeDirectory(directory).spool_identity / FileName.ITERATION
                data = path.read_bytes()
                if unsealed(data)["run_id"] == take.header.run_id:
                    return data
    return None


def readable_iterations(stores: Stores) -> list[Iteration]:
    """Return the iterations with a readable `iteration.json`, oldest first.

    Raises StoppedError.
    """
    found = []
    for folder in stores.until_stopped(stores.crawl.folders()):
        with suppress(DamagedFileError, PathNotFoundError):
            found.append(stores.crawl.folder(folder).iteration())
    return found


def nodes_left(stores: Stores) -> list[str]:
    """Return the nodes of the crawl that left without being retired.

    Readable iterations name these nodes, and `servers` does not.
    """
    parts = {node for one in readable_iterations(stores) if one.is_round for node in one.nodes}
    left = []
    for node in sorted({*parts, *SettledNotes.nodes(stores.crawl)} - set(stores.config.servers)):
        try:
            left += [] if NodeLayout(stores).is_retired(node) else [node]
        except (DamagedFileError, PathNotFoundError):
            left.append(node)  # findings of the note, or the iteration
    return left


def check_nodes(stores: Stores) -> list[Finding]:
    """Check for nodes that left: URLs in their queues are not crawled.

    See `nodes_left`.
    """
    findings = Findings("queue", "")
    for node in nodes_left(stores):
        where = str(stores.node_dir(node)) if stores.node_dir(node).is_dir() else node
        problem = f"node {node} is not in `servers`, and was not retired: what waits in its queue is not crawled"
        again = f"put it back, or run `krake nodes retire {node}` there (with --lost if its disk is gone)"
        findings.add("node_not_retired", where, problem, repair=again, severity=Severity.WARNING)
    return findings.list()
