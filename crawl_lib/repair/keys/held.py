"""The keys that should be known, and the waiting URLs: what pages, queues and outlinks say, against the key tables.

For each queued key some file holds the URL: a queue, an open take, an unfinished file of a task, or a line of
`outlinks` that is handed on past the key check and has not been taken in. If no file holds the URL, the URL is lost
without a word: links to the URL are dropped as known. The file `undecided` and other lines of `outlinks` hold no URL,
since known URLs are dropped from both.

The keys of a node on another machine are known by the note of `krake fsck --node NODE` (`crawldir.heldnotes`).

The other way round, a waiting URL with an unknown key counts as new when the next link to the URL is found, and is
fetched twice.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha1
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from crawl_lib.crawldir import Forgotten, HeldNote, HeldNotes, SettledNotes
from crawl_lib.engine import Ints, values_of
from crawl_lib.engine import keys_of as array_of
from crawl_lib.errors import DamagedFileError, KrakeError, PathNotFoundError, UrlError
from crawl_lib.frontier import Journal, Move, NodeDirectory, Queue, Take
from crawl_lib.keyarrays import Keys
from crawl_lib.keys import KEY_BYTES, KeyHeap
from crawl_lib.node import waiting_sources
from crawl_lib.repair.folders.identity import nodes_left
from crawl_lib.scratch import scratch_folder
from crawl_lib.segment import SegmentReader
from crawl_lib.states import KEY_STATE_OF_OUTCOME, KeyState, Outcome
from crawl_lib.stores import Stores
from crawl_lib.urlfiles import HANDED_ON_MARK, TakenIn, file_lines, some_lines, url_of_line
from crawl_lib.urls import canonicalize
from crawl_lib.warc import microseconds_of

_some = partial(some_lines, count=50_000)
_WITH_URLS = (
    NodeDirectory.new,
    NodeDirectory.new_claim,
    NodeDirectory.handed_on,
    NodeDirectory.take,
)
"""Files next to a queue with a URL at the beginning of each line."""
_MOVED_IN = (
    *(NodeDirectory.adopted, NodeDirectory.adopted_handed_on),
    *(NodeDirectory.rehomed, NodeDirectory.rehomed_handed_on),
    NodeDirectory.put_back,
)
"""The same; before the decision of their move, these are copies of the queue, and are made again from the queue."""


def page_states(stores: Stores, path: str, forgotten: Forgotten) -> Iterator[tuple[Keys, Ints]]:
    """Yield the keys of a segment's pages and the state of each, in pieces.

    Keys of pages that were taken out are included: they stay known. Keys forgotten since then are left out.
    """
    reader = SegmentReader(stores.storage, path)
    for batch in reader.pages(["key", "time", "outcome", "retry_at"], with_dropped=True):
        keys, times_us = array_of(batch.column(0)), values_of(batch.column(1).cast(pa.int64()))
        outcomes: Any = batch.column(2).dictionary_encode()
        named = [KEY_STATE_OF_OUTCOME[Outcome(name)] for name in outcomes.dictionary.to_pylist()]
        states = np.array(named, np.int8)[values_of(outcomes.indices)]
        is_known = values_of(batch.column(3).is_null()) & ~forgotten.of_page(keys, times_us)
        yield keys[is_known], states[is_known]
    taken_out = np.array(sorted(reader.taken_out - reader.dropped), f"S{KEY_BYTES}")
    # Their times are unknown, but no page was captured before the segment was begun.
    began_us = np.full(len(taken_out), microseconds_of(reader.manifest.started), np.int64)
    kept = taken_out[~forgotten.of_page(taken_out, began_us)]
    yield kept, np.full(len(kept), KeyState.CRAWLED, np.int8)


def queued_urls(stores: Stores, node: str) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the URLs that a node's queue has made known.

    URLs come in pieces, each with a file's name: the queue itself, handed-on URLs, and URLs that an open intake has
    chosen and sent. The file `undecided` and the end of `new` are left out: if their keys were known, the next intake
    would drop the URLs. A queue before its adoption, or with an open move, gives nothing: the next task inserts the
    keys.
    """
    queue = Queue(stores.node_dir(node), node)
    if (
        not queue.directory.is_dir()
        or Move.read(queue.directory) is not None
        or not queue.files.state.exists()
    ):
        return
    state = queue.state()
    if not queue.is_ours(state):
        return
    urls = (url for url, _ in queue.lines(state))
    yield from (("state", some) for some in _some(urls))
    yield from (("handed_on", some) for some in _some(map(url_of_line, queue.handed_on())))
    journal = Journal.read(queue.directory)
    if journal is not None:
        sent = journal.sent_bytes
        with queue.files.new.open("rb") as file:
            lines = iter(lambda: file.readline() if file.tell() < sent else b"", b"")
            yield from (
                (NodeDirectory.new, some) for some in _some(line.rstrip(b"\n") for line in lines)
            )


def urls_on_their_way(
    stores: Stores, node: str, taken_in: TakenIn | None = None
) -> Iterator[list[bytes]]:
    """Yield URLs on their way to a node past the key check.

    Other nodes, or this node, handed these URLs on, and the node has not taken them in.

    `taken_in`: None: from the queue on this machine. Raises DamagedFileError: a finding of the segment, or of injected
    seeds.
    """
    taken_in = _taken_in(stores, node) if taken_in is None else taken_in
    sources, _ = waiting_sources(stores, node, taken_in, before=None, planned=[])
    for source in sources:
        yield from _some(url_of_line(line) for line in source.open() if HANDED_ON_MARK in line)


def _taken_in(stores: Stores, node: str) -> TakenIn:
    try:
        return Queue(stores.node_dir(node), node).taken_in()
    except DamagedFileError:
        return TakenIn()  # a finding of the queue


def held_keys(stores: Stores, node: str) -> Iterator[list[bytes]]:
    """Yield the keys of all URLs in a node's directory.

    The directory may be in any state. Keys come in pieces. A URL before the position in `state` counts as processed,
    unless a move is open or `state` cannot be trusted.
    """
    queue = Queue(stores.node_dir(node), node)
    if not queue.directory.is_dir():
        return
    processed, ours, is_moving = 0, False, queue.files.move.exists()
    if not is_moving:
        with suppress(KrakeError):  # a finding of the queue
            state = queue.state()
            processed, ours = state.processed, queue.is_ours(state)
    longest = stores.config.urls.max_length_chars
    for number in queue.files.data_files():
        for some in _some(
            islice(file_lines(queue.files.data(number)), 0 if number else processed, None)
        ):
            yield keys_of(some)
            if not ours:  # people may have written the file
                yield keys_of(_canonical(some, longest))
    for name in _WITH_URLS + _MOVED_IN if is_moving else _WITH_URLS:
        yield from map(keys_of, _some(map(url_of_line, file_lines(queue.directory / name))))


def note_held(stores: Stores, node: str) -> HeldNote:
    """Write a note of the URLs that a node's directory holds.

    The note is for checks on other machines. The caller holds the node's lock. Raises LockedError while another process
    of this machine writes the same note, StorageError.
    """
    with ExitStack() as stack:
        heap = KeyHeap(
            lambda: stack.enter_context(scratch_folder(stores.config, f"repair-held-{node}"))
        )
        for keys in held_keys(stores, node):
            heap.add(keys)
        return HeldNotes(stores.crawl, node).write(
            map(b"".join, _some(heap)),
            taken_in=_taken_in(stores, node),
            lost=NodeDirectory(stores.node_dir(node)).lost.exists(),
            take=open_folder(stores, node),
            config=stores.config_digest,
        )


def open_folder(stores: Stores, node: str) -> str:
    """Return the folder of a node's open take.

    "": there is no readable take.
    """
    take = Take.readable(stores.node_dir(node))
    return take.header.folder if take else ""


@dataclass(frozen=True)
class Sight:
    """The known facts about nodes with unreadable directories: see `look`.

    `notes`: valid notes of nodes. `unknown`: of other nodes, the step that has to come first, in words. `damaged`:
    unreadable notes, by node, in words; these nodes are `unknown` too.
    """

    notes: dict[str, HeldNote] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)

    def refusals(self) -> list[str]:
        """Say what has to be done, a text for each node."""
        return [f"node {node} {problem}" for node, problem in self.unknown.items()]

    def began(self, stores: Stores) -> list[str]:
        """Return the nodes on which work has begun since the look.

        The read of the key tables does not cover these nodes.
        """
        return [node for node, note in self.notes.items() if not note.is_there(stores.crawl)]


def look(stores: Stores, nodes: Collection[str], heap: "KeyHeap | None" = None) -> Sight:
    """Find out what is known of nodes with URLs elsewhere.

    `nodes`: nodes with held locks; `heap`: gets the keys in the notes of the other nodes.
    """
    sight = Sight()
    for node in nodes_unseen(stores, nodes):
        note = None
        try:
            note = HeldNotes(stores.crawl, node).read()
            if (
                node in stores.config.servers
                and note is not None
                and note.is_of(stores.config_digest)
            ):
                if heap is not None:
                    for keys in HeldNotes(stores.crawl, note.node).keys(note):
                        heap.add(keys)
                sight.notes[node] = note
                continue
        except DamagedFileError as error:
            sight.damaged[node] = str(error)
        except PathNotFoundError:
            note = None  # the note was taken away meanwhile
        sight.unknown[node] = _to_do(stores, node, note, damaged=node in sight.damaged)
    return sight


def _to_do(stores: Stores, node: str, note: HeldNote | None, *, damaged: bool) -> str:
    again = f"run `{HeldNotes.command(node)}` on the node's machine while the node rests"
    directory = stores.node_dir(node)
    if node not in stores.config.servers:
        return f"is not in `servers`, and was not retired: put it back, or run `krake nodes retire {node}` there"
    if damaged:
        return f"has a damaged note of its keys: {again}"
    if note is not None:
        return f"noted its keys with another config, or other files of Krake: {again}"
    if not directory.is_dir():
        return f"has not noted its keys since it was worked on last: {again}"
    if Queue(directory, node).exists():
        return "is worked on: run this again when it rests"
    return f"has lost its queue: put it back, or run `krake nodes restart {node}`"


def hold_all(
    stores: Stores, nodes: Collection[str], notes: Mapping[str, HeldNote], heap: "KeyHeap"
) -> None:
    """Put the keys that nodes hold into a heap.

    The nodes are `nodes` and the config's. URLs on their way to a node count too. Raises DamagedFileError as
    `urls_on_their_way` does.
    """
    for node in dict.fromkeys([*stores.config.servers, *nodes]):
        note = notes.get(node)
        if note is None:
            for keys in held_keys(stores, node):
                heap.add(keys)
        for urls in urls_on_their_way(stores, node, note.taken_in if note else None):
            heap.add(keys_of(urls))


def nodes_unseen(stores: Stores, nodes: Collection[str]) -> list[str]:
    """Return nodes that may hold URLs in unreadable directories.

    These nodes are elsewhere, at work, or gone.

    `nodes`: nodes with held locks. If keys lie in files there is no other machine, so a node without a directory has
    not been used yet. A node that left without being retired counts.
    """
    unseen = [node for node in stores.config.servers if not _is_seen(stores, node, nodes)]
    return unseen + [node for node in nodes_left(stores) if node not in nodes]


def _is_seen(stores: Stores, node: str, nodes: Collection[str]) -> bool:
    directory = stores.node_dir(node)
    if directory.is_dir() and Queue(directory, node).exists():
        return node in nodes
    embedded = stores.config.key_storage.is_embedded
    return (embedded or directory.is_dir()) and SettledNotes(
        stores.crawl, node
    ).urls_of_lost_queue() is None


def keys_of(urls: Iterable[bytes]) -> list[bytes]:
    """Return the keys of canonical URLs."""
    return [sha1(url).digest() for url in urls]


def _canonical(lines: Iterable[bytes], max_length_chars: int) -> Iterator[bytes]:
    for line in lines:
        text = line.decode("utf-8", "surrogateescape").strip()
        with suppress(UrlError):  # such a line is never crawled
            yield canonicalize(text, max_length_chars=max_length_chars).encode()
