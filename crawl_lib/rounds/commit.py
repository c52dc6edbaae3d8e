"""The stage `commit`: an iteration is done when the segments of its nodes exist, or of `crawl.min_nodes` of them.

It adds nothing that the segments do not say; the index it writes lets the next intake open one file instead of one a
node, and lets the next start sum up without reading manifests. Run again, it finds the index and returns its counts.

No stage changes the index; a repair that puts a segment in the place of another writes it again. A node that commit
went on without is named in it; the node's segment may appear in the folder later (`crawldir.FolderState`).

If few URLs were answered at all, the network of our machines may be away: commit warns, and with `crawl.min_success`
the attempt that wrote the index fails once it is durable. Another attempt goes on, since people have seen it then.
"""

import logging
import math
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha1
from itertools import islice
from typing import Any

from crawl_lib.crawldir import FileName, FolderIndex, FolderState, Iteration, Starts
from crawl_lib.dataclass import dataclass
from crawl_lib.dfsfiles import read_lines, write_json_bytes
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError, FewAnswersError, PathNotFoundError, TargetExistsError
from crawl_lib.frontier import IntakeReport
from crawl_lib.rounds.ending import ended, generated, what_is_left
from crawl_lib.rounds.waiting import what_waits
from crawl_lib.sealed import SEALED_VERSION
from crawl_lib.states import answers_of
from crawl_lib.stores import Stores
from crawl_lib.urlfiles import ScopeFile
from crawl_lib.urls import Budgets

MIN_ASKED = 50
"""Of fewer URLs a share says nothing: the last rounds of a crawl may hold a few that no server answers."""
USUAL_SHARE = 0.5
"""Below it there is a warning. Even of old lists of seeds most URLs are answered, with whatever status: where half is
not, the network, the name servers or the proxy of our machines are the likelier cause, or a dead site has the queue."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Committed:
    """The result of a commit. `missing`: nodes without a segment; `counts`: of the iteration, late segments included.

    `budgets`: hosts and domains at the limit of an option. `ended`: why the run's iterations end (`ending`). `urls`:
    the number of URLs that ended. `waiting`: about hosts in back-off and the queues of this machine; `warning`: about
    few answers or a run without any fetch. "": nothing is to be said.
    """

    folder: str
    iteration: int
    missing: list[str]
    budgets: str
    ended: str
    urls: int
    counts: dict[str, Any]
    waiting: str
    warning: str


def commit_iteration(stores: Stores, *, run_id: str, iteration: int) -> Committed:
    """Check that an iteration's segments exist, and write the index.

    All nodes must have segments, or `crawl.min_nodes` of the nodes. Raises PathNotFoundError for too many missing
    nodes: run their crawl tasks again, then commit. Raises FewAnswersError after the index is written, for fewer
    answers than `crawl.min_success`.
    """
    found = stores.crawl.find(run_id, iteration)
    if found is None:
        raise PathNotFoundError(
            f"{stores.crawl.path}: iteration {iteration} of run {run_id!r} has no folder; run its crawl tasks first"
        )
    is_new = write_index(stores, found)
    prefix = Starts.hidden_prefix(run_id, iteration)
    for entry in stores.storage.list(stores.crawl.path):
        if entry.name.startswith(prefix):  # of another attempt to start this iteration
            stores.storage.delete(stores.crawl.at(entry.name))
    keep_late_scope(stores, found.folder)
    state = FolderState.read(stores.crawl, found.folder)
    few, run = few_answers(stores, state), _outcomes_of_run(stores, state, found)
    _require_answers(stores, state, run, is_new=is_new)
    warning = "; ".join(filter(None, (few, nothing_fetched(run))))
    why = "" if stores.config.order.makes_lists else ended(state)  # its lists say so
    budgets = budgets_reached(stores, state)
    if budgets:
        log.warning("%s: %s", state.folder.path, budgets)
    if warning:
        log.warning("%s: %s", state.folder.path, warning)
    return Committed(
        folder=found.folder,
        iteration=iteration,
        missing=state.missing,
        budgets=budgets,
        ended=why,
        urls=state.urls,
        counts=state.counts,
        waiting=str(what_waits(stores.config)),
        warning=warning,
    )


def _outcomes_of_run(stores: Stores, state: FolderState, current: Iteration) -> Counter[str]:
    """Return the outcomes of an iteration and earlier unanswered ones.

    The run's earlier ones count as far as none has an answer.
    """
    outcomes = Counter[str](state.counts["outcomes"])
    for number in range(current.iteration - 1, 0, -1):
        if answers_of(outcomes)[0]:
            break
        if earlier := stores.crawl.find(current.run_id, number):
            outcomes.update(FolderState.read(stores.crawl, earlier.folder).counts["outcomes"])
    return outcomes


def nothing_fetched(outcomes: Mapping[str, int]) -> str:
    """Return a sentence about a run without any answer.

    "" for a run with one. `outcomes`: of the run.
    """
    if answers_of(outcomes)[0]:
        return ""
    words = ", ".join(f"{outcome} {number:,}" for outcome, number in outcomes.items() if number)
    return f"this run has fetched nothing so far ({words or 'no URL was taken'})"


def few_answers(stores: Stores, state: FolderState) -> str:
    """Return a sentence about a folder with few answers.

    Few: less than half, or `crawl.min_success`. "" if enough were, or fewer than 50 asked.
    """
    answered, asked = answers_of(state.counts["outcomes"])
    if asked < MIN_ASKED or answered >= asked * max(stores.config.crawl.min_success, USUAL_SHARE):
        return ""
    return f"only {answered:,} of {asked:,} URLs were answered at all"


def budgets_reached(stores: Stores, state: FolderState) -> str:
    """Return the hosts and domains at a limit, in words.

    When an iteration's URLs were queued or listed; "" for none. Each is named with the option, and with the section
    that has exceptions. A list that is damaged says nothing here.
    """
    counts = [state.index.said.get("over_budget", {}) if state.index else {}]
    if stores.config.order.makes_lists:
        with suppress(DamagedFileError):
            said = (made.said for _, made in generated(stores))
            lists = (one for one in said if one.get("folder") == state.folder.name)
            counts += [one.get("over_budget", {}) for one in islice(lists, 1)]
    words = Budgets.in_words(IntakeReport.largest(*counts))
    return f"{words}; for exceptions see urls.domains" if words else ""


def _require_answers(
    stores: Stores, state: FolderState, run: Mapping[str, int], *, is_new: bool
) -> None:
    """Check the number of answers.

    Raises FewAnswersError. Below `MIN_ASKED` URLs only where the whole `run` was not answered once.
    """
    answered, asked = answers_of(state.counts["outcomes"])
    share = stores.config.crawl.min_success
    is_too_few = asked >= MIN_ASKED or not answers_of(run)[0]
    if is_new and answered < asked * share and is_too_few:
        raise FewAnswersError(
            f"{state.folder.path}: only {answered:,} of {asked:,} URLs were answered at all, and crawl.min_success is"
            f" {share:g}: look at the network, the name servers"
            " and the proxy of the nodes. Nothing is lost: the iteration is committed, and what may pass is tried again"
            " later. A new run goes on with it, and so does this one once commit is cleared with its downstream"
        )


def needed_segments(nodes: int, share: float) -> int:
    """Return how many segments a commit needs.

    `share` (`crawl.min_nodes`) of the nodes, rounded up.
    """
    return math.ceil(round(nodes * share, 6))


def keep_late_scope(stores: Stores, folder: str) -> None:
    """Keep late segments' hosts outside of their folder.

    They belong to the scope, and outlive the folder. Called after a late segment became visible, and after the index:
    the later call sees both.
    """
    state = FolderState.read(stores.crawl, folder)
    for node, manifest in state.unsummed.items() if state.index is not None else ():
        path = stores.crawl.at(FileName.SCOPE, f"{folder}-{node}")
        if manifest["scope_added"] and not stores.storage.exists(path):
            _write_once(stores, path, ScopeFile.data_of(manifest["scope_added"]))
            reached("commit.late_scope")


def write_index(stores: Stores, iteration: Iteration, share: float | None = None) -> bool:
    """Write an iteration's index durably; return whether it was missing.

    Raises as `commit_iteration`.

    `share`: of the nodes whose segments have to be there; None: `crawl.min_nodes`.
    """
    path = stores.crawl.at(iteration.folder, FileName.INDEX)
    is_new = not stores.storage.exists(path)
    if is_new:
        _write_index(stores, iteration, stores.config.crawl.min_nodes if share is None else share)
        reached("commit.written")
    stores.storage.secure(path)
    return is_new


def _write_index(stores: Stores, iteration: Iteration, share: float) -> None:
    state = FolderState.read(stores.crawl, iteration.folder)
    folder, nodes = state.folder, len(iteration.nodes)
    missing = [node for node in iteration.nodes if node not in state.present]
    needed = needed_segments(nodes, share)
    if nodes - len(missing) < needed:
        some = (
            "" if share == 1 else f" (crawl.min_nodes is {share:g}: {needed} of {nodes} must exist)"
        )
        raise PathNotFoundError(
            f"{folder.path}: no segment of {', '.join(missing)}; run the crawl task of each again, then commit{some}"
        )
    if missing:
        log.warning(
            "%s: committed without %s; each finishes what it took when it works again",
            folder.path,
            missing,
        )
    over_budget = [one.get("intake", {}).get("over_budget", {}) for one in state.unsummed.values()]
    index = {
        "format_version": SEALED_VERSION,
        "run_id": iteration.run_id,
        "iteration": iteration.iteration,
        "counts": state.counts,
        "scope_added": sorted(state.scope_added),
        "outlinks": {node: manifest["outlinks"] for node, manifest in state.unsummed.items()},
        "missing": missing,
        "over_budget": IntakeReport.largest(*over_budget),
        **what_is_left(state.unsummed.values()),
    }
    if state.scope_added:
        # Before the index, which says that commit is done; the folder may be deleted by hand after that.
        path = stores.crawl.at(FileName.SCOPE, folder.name)
        data = ScopeFile.data_of(state.scope_added)
        _write_once(stores, path, data)
        if not state.scope_added <= set(
            read_lines(stores.storage, path)
        ):  # of an attempt that saw fewer segments
            _write_once(stores, f"{path}-{sha1(data).hexdigest()}", data)
        reached("commit.scope")
    _write_once(stores, folder.at(FileName.INDEX), write_json_bytes(index))


def index_problem(stores: Stores, folder: str) -> tuple[str, str] | None:
    """Return the fault of a folder's index, or None.

    The name of a finding, and words.

    `segment_missing`: it names segments that are not there, which only people can bring back.
    """
    where, kept = _index_paths(stores, folder)
    if not stores.storage.exists(where):
        half = stores.storage.exists(kept)  # else it is not committed yet
        return ("index_damaged", "its repair was stopped half-way") if half else None
    index = FolderIndex.readable(stores.storage, where)
    if index is None:
        return "index_damaged", "cannot be used"
    corrected = _corrected(stores, folder, index)
    if missing := sorted(corrected.outlinks.keys() - set(stores.crawl.folder(folder).segments())):
        return "segment_missing", f"it names segments that are not there: {', '.join(missing)}"
    return (
        None
        if corrected == index
        else ("index_differs", "differs from the manifests of its segments")
    )


def refresh_index(stores: Stores, folder: str) -> None:
    """Write a committed folder's index again, if outdated.

    The segments decide. Where it is missing for a moment, readers ask the segments themselves. A folder that was not
    committed has none.
    """
    storage, (where, kept) = stores.storage, _index_paths(stores, folder)
    if storage.exists(where):
        index = FolderIndex.readable(storage, where)
        is_right = index is not None and index == _corrected(stores, folder, index)
        storage.delete(kept)
        if is_right:
            return
        storage.rename(where, kept)
    elif not storage.exists(kept):
        return
    reached("rounds.index.aside")
    if old := FolderIndex.readable(storage, kept):
        wanted = _corrected(stores, folder, old)
        storage.write_bytes(where, write_json_bytes(wanted.said))
    else:
        # It was committed, so enough nodes had their segments by what the config said then.
        write_index(stores, stores.crawl.folder(folder).iteration(), share=0.0)
    reached("rounds.index.written")
    storage.delete(kept)


def _index_paths(stores: Stores, folder: str) -> tuple[str, str]:
    """Return the paths of the index and the replaced index.

    The old one is there while a repair writes the index again.
    """
    return stores.crawl.at(folder, FileName.INDEX), stores.crawl.at(
        folder, f".{FileName.INDEX}.old"
    )


def _corrected(stores: Stores, folder: str, index: FolderIndex) -> FolderIndex:
    """Return an index corrected by its readable segments.

    Hosts that were added stay: a segment that was made again may have lost some of them.
    """
    there = stores.crawl.folder(folder).readable_manifests()
    manifests = {node: there[node] for node in index.outlinks if node in there}
    outlinks = {
        **index.outlinks,
        **{node: manifest["outlinks"] for node, manifest in manifests.items()},
    }
    counts = [manifest["counts"] for manifest in manifests.values()]
    hosts = {host for one in manifests.values() for host in one["scope_added"]}
    return index.corrected(
        FolderState.sum_counts(counts) if len(counts) == len(outlinks) else index.counts,
        outlinks,
        sorted(hosts.union(index.scope_added)),
    )


def _write_once(stores: Stores, path: str, data: bytes) -> None:
    with suppress(TargetExistsError):  # another attempt wrote the same
        stores.storage.write_bytes(path, data)
