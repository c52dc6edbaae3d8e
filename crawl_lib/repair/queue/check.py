"""`krake fsck` of a node's directory: what each room says of its files, and what segments and the DFS say of it."""

from crawl_lib.crawldir import MANIFEST_FILE
from crawl_lib.errors import DamagedFileError
from crawl_lib.fetch import HOSTS_TABLES, host_stores
from crawl_lib.findings import Finding, Findings, sqlite_problem
from crawl_lib.frontier import NodeDirectory, Queue, Take, check_queue, open_take, read_leftover
from crawl_lib.node import mismatch, read_decision
from crawl_lib.segment import built_problem, damaged_parts, hidden_folder
from crawl_lib.stores import Stores


def check_node(stores: Stores, node: str, *, full: bool = True) -> list[Finding]:
    """What is wrong with a node's directory; nothing is changed. The caller holds its lock."""
    directory = stores.node_dir(node)
    found = check_queue(directory, node, full=full, on_progress=stores.on_progress)
    findings = Findings("queue", "run `krake fsck --repair`")
    for path in host_stores(directory):
        if problem := sqlite_problem(path, HOSTS_TABLES):
            findings.add("hosts_damaged", str(path), problem)
    if (older := mismatch(stores, Queue(directory, node))) is not None:
        findings.add(older.name, str(directory), older.problem, repair=older.remedy)
    try:
        read_decision(directory)
    except DamagedFileError as error:
        again = "delete it; a node that is to be retired is retired again"
        findings.add("retire_damaged", str(NodeDirectory(directory).retire), str(error), repair=again)
    try:
        take = open_take(directory)
        if take is not None:
            _check_take(stores, take, NodeDirectory(directory), findings, full=full)
    except DamagedFileError:
        pass  # a finding of the queue
    return found + findings.list()


def _check_take(stores: Stores, take: Take, files: NodeDirectory, findings: Findings, *, full: bool) -> None:
    """An open take goes on only in the folder of its iteration; where its segment is there, `leftover` is too."""
    node, folder = take.header.node, stores.crawl.at(take.header.folder)
    if not stores.storage.exists(folder):
        again = f"put the folder back, or move {take.path} and its spool away: its URLs are fetched again"
        problem = f"the folder of its iteration, {folder}, is gone"
        findings.add("take_folder_gone", str(take.path), problem, repair=again)
    elif stores.storage.exists(f"{folder}/{node}") and read_leftover(take) is None:
        problem = "is not there, and the segment of the take is"
        findings.add("leftover_damaged", str(files.leftover), problem)
    if stores.storage.exists(f"{folder}/{node}/{MANIFEST_FILE}"):
        return  # nobody reads its spool any more
    hidden = hidden_folder(folder, node, take.take_id)
    for part, finding, problem in damaged_parts(files.spool, stores.storage, hidden, full=full, work=stores):
        findings.add(finding, str(part.warc), problem)
    for name, problem in spool_problems(files, full=full):
        findings.add("spool_damaged", str(files.spool / name), problem)


def spool_problems(files: NodeDirectory, *, full: bool) -> list[tuple[str, str]]:
    """What is wrong in a spool beside its parts, by name: both are made again once they are gone.

    The list of hosts that its workers follow links to; the segment that is built, and waits to be sent.
    """
    scope, built = files.spool_scope, files.spool_segment
    problems = []
    try:
        if take := open_take(files.path):
            take.scope()
    except FileNotFoundError:
        pass
    except DamagedFileError as error:
        problems.append((scope.name, str(error)))
    if problem := built_problem(built, full=full):
        problems.append((built.name, problem))
    return problems
