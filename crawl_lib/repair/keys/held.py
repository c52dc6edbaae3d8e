"""The keys that should be known, and the waiting URLs: what pages, queues and outlinks say, against the key tables.

For each queued key some file holds the URL: a queue, an open take, an unfinished file of a task, or a line of
`outlinks` that is handed on past the key check and has not been taken in. If no file holds the URL, the URL is lost
without a word: links to the URL are dropped as known. The file `undecided` and other lines of `outlinks` hold no URL,
since known URLs are dropped from both.

The queue of a node on another machine is unknown: `again` finds the lost URLs of each node without the other queues.

The other way round, a waiting URL with an unknown key counts as new when the next link to the URL is found, and is
fetched twice.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha1
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from crawl_lib.crawldir import Forgotten, SettledNotes
from crawl_lib.engine import Ints, values_of
from crawl_lib.engine import keys_of as array_of
from crawl_lib.errors import DamagedFileError, KrakeError, UrlError
from crawl_lib.frontier import Journal, Move, NodeDirectory, Queue, Take
from crawl_lib.keyarrays import Keys
from crawl_lib.keys import KEY_BYTES, KeyHeap
from crawl_lib.node import waiting_sources
from crawl_lib.repair.folders.identity import nodes_left
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


def urls_on_their_way(stores: Stores, node: str) -> Iterator[list[bytes]]:
    """Yield URLs on their way to a node past the key check.

    Other nodes, or this node, handed these URLs on, and the node has not taken them in. Raises DamagedFileError: a
    finding of the segment, or of injected seeds.
    """
    taken_in = TakenIn()
    with suppress(DamagedFileError):  # a finding of the queue
        taken_in = Queue(stores.node_dir(node), node).taken_in()
    sources, _ = waiting_sources(stores, node, taken_in, before=None, planned=[])
    for source in sources:
        yield from _some(url_of_line(line) for line in source.open() if HANDED_ON_MARK in line)


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


def open_folder(stores: Stores, node: str) -> str:
    """Return the folder of a node's open take.

    "": there is no readable take.
    """
    take = Take.readable(stores.node_dir(node))
    return take.header.folder if take else ""


def hold_all(stores: Stores, nodes: Collection[str], heap: KeyHeap) -> None:
    """Put the keys that nodes hold into a heap.

    The nodes are `nodes` and the config's. URLs on their way to a node count too. Raises DamagedFileError as
    `urls_on_their_way` does.
    """
    for node in dict.fromkeys([*stores.config.servers, *nodes]):
        for keys in held_keys(stores, node):
            heap.add(keys)
        for urls in urls_on_their_way(stores, node):
            heap.add(keys_of(urls))


def unseen_nodes(stores: Stores, nodes: Collection[str]) -> dict[str, str]:
    """Return nodes that may hold URLs in unreadable directories, each with the reason in words.

    `nodes`: nodes with held locks. If keys lie in files there is no other machine, so a node without a directory has
    not been used yet. A node that left without being retired counts.
    """
    unseen = {
        node: _why_unseen(stores, node) for node in stores.config.servers if node not in nodes
    }
    left = {
        node: "is not in `servers`, and was not retired: put it back, or run"
        f" `krake nodes retire {node}` there"
        for node in nodes_left(stores)
        if node not in nodes
    }
    return {node: why for node, why in (unseen | left).items() if why}


def _why_unseen(stores: Stores, node: str) -> str:
    """Return why a node's URLs are unknown here; empty: the node has none."""
    directory = stores.node_dir(node)
    if directory.is_dir() and Queue(directory, node).exists():
        return "is worked on: run this again when it rests"
    is_here = stores.config.key_storage.is_embedded or directory.is_dir()
    if is_here and SettledNotes(stores.crawl, node).urls_of_lost_queue() is None:
        return ""
    if directory.is_dir():
        return f"has lost its queue: put it back, or run `krake nodes restart {node}`"
    return "has its queue on another machine: `krake settle --all-again` on each machine finds lost URLs"


def keys_of(urls: Iterable[bytes]) -> list[bytes]:
    """Return the keys of canonical URLs."""
    return [sha1(url).digest() for url in urls]


def _canonical(lines: Iterable[bytes], max_length_chars: int) -> Iterator[bytes]:
    for line in lines:
        text = line.decode("utf-8", "surrogateescape").strip()
        with suppress(UrlError):  # such a line is never crawled
            yield canonicalize(text, max_length_chars=max_length_chars).encode()
