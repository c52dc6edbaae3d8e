"""The status of a crawl in types: a mapping for JSON, which `krake status --json` and a page show as it is."""

from typing import Any, TypedDict


class ToldProgress(TypedDict, total=False):
    """A report of a node's task, with the reason of a pause.

    `eta_s`, `queue_eta_s`: seconds until the take and the queue are fetched at the present rate.
    """

    phase: str
    reason: str
    error: str
    taken: int
    fetched: int
    errors: int
    bytes: int
    queue: int
    pages_per_s: float
    time: float
    curve: list[list[int]]
    eta_s: int
    queue_eta_s: int


class OpenTake(TypedDict):
    """The URLs that a node fetches now."""

    run_id: str
    iteration: int
    count: int


class QueuedHost(TypedDict, total=False):
    """A host of a queue's next URLs. `back_off`: until when the node leaves it alone."""

    urls: int
    back_off: str


class BackOffs(TypedDict):
    """The number of hosts that a node leaves alone. `until`: until when, of the first ones."""

    hosts: int
    until: dict[str, str]


TaskTold = TypedDict("TaskTold", {"run_id": str, "state": str, "try": int})
"""The newest task of a node, as Airflow knows it."""


class QueueStatus(TypedDict, total=False):
    """The queue of a node. `note`: why it is not known here; `hosts`: the `SHOWN_HOSTS` most frequent ones of the next
    `HOST_LINES` URLs.

    `open_move`: its id. `progress`: the newest report of the node's task. `task`, `silent_since`: of a node on another
    machine, see `queues_elsewhere`.
    """

    length: int
    note: str
    error: str
    hosts: dict[str, QueuedHost]
    back_off: BackOffs
    open_move: str
    open_take: OpenTake
    progress: ToldProgress
    task: TaskTold
    silent_since: str


class IterationStatus(TypedDict, total=False):
    """An iteration. `late`: nodes whose segments may still come; `complete`: nothing will be added.

    `bytes`: of its segments. `dropped`: pages that somebody dropped, and that are not compacted yet; `warning`: few
    URLs were answered; `budgets`: see `commit_iteration`. One that cannot be read has `folder` and `error` alone.
    """

    folder: str
    error: str
    run_id: str
    iteration: int
    segments: list[str]
    missing: list[str]
    committed: bool
    late: list[str]
    complete: bool
    counts: dict[str, Any]
    dropped: int
    warning: str
    budgets: str
    bytes: int


class NodeStatus(TypedDict, total=False):
    """The DFS's facts on a node. `late`: folders that were committed without it.

    `settled`: the youngest folder at its last settle, "" if there was none; not there if the node works, or has not
    settled yet. `behind`: whether it settled before the newest iteration. `queue`: URLs that waited then. `retired`,
    `lost`: see `crawldir.Settled`. `hosts`: its share of the scope, only of `krake nodes list`.
    """

    late: list[str]
    error: str
    settled: str
    behind: bool
    queue: int
    undecided: int
    retired: bool
    lost: bool
    hosts: int


class ExportStatus(TypedDict):
    """An export. `pages`: None before its mapping is there; `bytes`: by file."""

    name: str
    pages: int | None
    bytes: dict[str, int]
    complete: bool


class CrawlStatus(TypedDict, total=False):
    """The status of a crawl. `crawl`: the address of the crawl directory; `error`: why the file store cannot tell.

    * `waiting`, if anything waits on this machine: a line on URLs and hosts. `keys`: of each server.
    * `injected`: the number of folders of seeds. `older`: of iterations that are not listed; `unread`, if any: of those
      without a read yet, which no sum has. The newest `WITH_BYTES` iterations have their `bytes`.
    * `totals`: the sum of all counts. `urls` counts each URL once, when the URL ends; `fetched` counts all tries.
    """

    crawl: str
    error: str
    waiting: str
    queues: dict[str, QueueStatus]
    keys: list[dict[str, Any]]
    injected: int
    iterations: list[IterationStatus]
    older: int
    unread: int
    totals: dict[str, Any]
    nodes: dict[str, NodeStatus]
    exports: list[ExportStatus]
