"""What `krake fsck` looks for in the CrawlDb, and what the first version of a fifo crawl asks of its queues."""

from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256

from crawl_lib.crawldb.update import update
from crawl_lib.crawldb.version import REMEDY, Version, newest_version, read_version, version_numbers, version_path
from crawl_lib.crawldir import read_settled
from crawl_lib.errors import DamagedFileError, InputError
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.stores import Stores

_BLOCK_BYTES = 1 << 20


def check_crawldb(stores: Stores, *, full: bool = True) -> list[Finding]:
    """Versions that are not whole. `full`: every byte is read. Raises StorageError, StoppedError."""
    findings = Findings("crawldb", REMEDY)
    for number in version_numbers(stores.crawl):
        where = version_path(stores.crawl, number)
        try:
            version = read_version(stores.crawl, number)
            if full:
                _require_bytes(stores, version)
        except DamagedFileError as error:
            problem = str(error).removesuffix(f"; {REMEDY}")
            findings.add("crawldb_damaged", where, problem, severity=Severity.WARNING)
    return findings.list()


def _require_bytes(stores: Stores, version: Version) -> None:
    for path, part in zip(version.paths, version.manifest["parts"], strict=True):
        digest = sha256()
        with stores.storage.open_read(path) as file:
            while block := file.read(_BLOCK_BYTES):
                stores.go_on()
                digest.update(block)
        if digest.hexdigest() != part["sha256"]:
            raise DamagedFileError(f"{path}: is not what was written (SHA-256)")


def init_crawldb(stores: Stores, *, now: datetime) -> Version:
    """The first version, of a crawl that was made with `frontier.order: fifo`: of all its seeds and segments.

    Where there is one already, an update. Raises InputError while URLs wait in queues, naming the nodes: these lists of
    what to fetch would be lost; and what `update` does.
    """
    if newest_version(stores) is None and (waiting := list(_waiting(stores))):
        raise InputError(
            f"{stores.crawl.path}: URLs wait in queues ({', '.join(waiting)}): crawl on with frontier.order: fifo until"
            " nothing waits, then make the CrawlDb"
        )
    return update(stores, now=now)


def _waiting(stores: Stores) -> Iterator[str]:
    """What waits at each node, as it has said at its last settle."""
    newest = stores.crawl.newest_iteration()
    for node in stores.config.servers if newest else ():
        settled = read_settled(stores.crawl, node)
        if settled is None or (newest and settled.newest != newest.folder and not settled.retired):
            yield f"{node}: has not settled since the last iteration"
        elif settled.queue or settled.undecided:
            yield f"{node}: {settled.queue + settled.undecided}"
