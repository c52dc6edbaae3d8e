"""When a run's iterations end before as many were done as it asks for: nothing waits, or nothing that is due.

The manifests of an iteration say what is left for the next one, and its index sums that up. The index alone decides,
so the answer stays the same whatever came since: seeds of another run are this other run's, and a late segment belongs
to an iteration that had a node missing, which ends nothing.

With a CrawlDb the lists decide: rounds end where nothing was due, and nothing waits in a queue. The list says so, and
no iteration begins with it.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from crawl_lib.config import Config
from crawl_lib.crawldir import FileName, FolderState, InboxManifest
from crawl_lib.stores import Stores


def what_is_left(manifests: Collection[Mapping[str, Any]]) -> dict[str, int | None]:
    """Return the index's sums of what waits, from manifests.

    An iteration's sums of `queue_after` and `undecided`, and the least `next_due`; None for unknown sums.
    """
    left: dict[str, list[Any]] = {
        name: [manifest.get(name) for manifest in manifests]
        for name in ("queue_after", "undecided")
    }
    dues: list[Any] = [
        manifest.get("next_due") for manifest in manifests if manifest.get("queue_after") != 0
    ]
    return {
        **{name: None if None in values else sum(values) for name, values in left.items()},
        "next_due": None if None in dues else min(dues, default=None),
    }


def generated(stores: Stores) -> Iterator[tuple[str, InboxManifest]]:
    """Yield the manifests of the CrawlDb's lists, newest first.

    Each comes after the list's name. A `generate` of another run may delete a list meanwhile; such a list is over, and
    left out. Raises DamagedFileError naming one that cannot be read.
    """
    for name in sorted(stores.crawl.inbox.lists(), key=list_number, reverse=True):
        if list_number(name) > (0, 0):
            manifest = stores.crawl.inbox.manifest_if_there(name, FileName.LISTS)
            if manifest is not None:
                yield name, manifest


def list_number(name: str) -> tuple[int, int]:
    """Return a list's CrawlDb version, and its number among these.

    (-1, 0) for other lists.
    """
    version, _, number = name.partition("-")
    return (int(version), int(number)) if version.isdecimal() and number.isdecimal() else (-1, 0)


def nothing_due(made: InboxManifest) -> str:
    """Return why rounds end with a list, or "".

    `made`: its manifest.
    """
    next_due = made.said["next_due"]
    if not made.said["ends_rounds"]:
        return ""
    return "nothing is due" if next_due is None else f"nothing is due before {_utc(next_due)}"


def ended(state: FolderState) -> str:
    """Return why a run's iterations end with this one, or "".

    The index says so; "" also if it does not know. They end if no node was missing, nothing was taken, nothing was
    found for any node, and nothing waits; also if all that waits was not due yet when the iteration began, or no node
    might take anything.
    """
    index = state.index
    if index is None or index.missing or index.counts.get("taken"):
        return ""
    if any(part["count"] for parts in index.outlinks.values() for part in parts.values()):
        return ""
    queued, undecided, due = (
        index.said.get(name) for name in ("queue_after", "undecided", "next_due")
    )
    if undecided == 0 and queued == 0:
        return "nothing is queued"
    if undecided == 0 and due is not None and due > int(state.folder.name):
        return f"nothing is due before {_utc(due)}"
    if undecided == 0 and not any(state.folder.iteration().batch_sizes.values()):
        return "crawl.max_pages leaves nothing to take"
    return ""


def requisite_rounds(config: Config) -> range:
    """Return the numbers of the iterations that take requisites only.

    They are beyond all that a run may ask for.
    """
    first = config.crawl.max_iterations + 1
    return range(
        first, first + (config.crawl.requisite_rounds if config.parse.wants_requisites else 0)
    )


def is_of_requisites(config: Config, iteration: int) -> bool:
    """Tell whether an iteration takes requisites only."""
    return iteration in requisite_rounds(config)


def _utc(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def ended_before(stores: Stores, *, run_id: str, iteration: int) -> str:
    """Return why a run does not begin an iteration, or "".

    Its newest one was the last (`ended`). "" if it has this one's folder. An iteration of requisites does not begin
    either where the newest one left none. With a CrawlDb: its list, or the one before, found nothing due.
    """
    current = stores.crawl.find(run_id, None)
    if stores.config.order.makes_lists:
        done = current.iteration if current else 0
        made = (
            one
            for _, one in generated(stores)
            if one.said["run_id"] == run_id and done < one.said["iteration"] <= iteration
        )
        return next(filter(None, map(nothing_due, made)), "")
    if current is None or current.iteration >= iteration:
        return ""
    state = FolderState.read(stores.crawl, current.folder)
    waits = state.counts.get("requisites") or not is_of_requisites(stores.config, iteration)
    return ended(state) or ("" if waits else "no requisite waits")
