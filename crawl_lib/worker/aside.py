"""A separate process for pages whose reading would hold the loop: the answers of one worker, one at a time.

The worker forks a small server early, before it has threads, connections and bodies. On a socket (SOCK_SEQPACKET, so a
message stays whole) it says where in the spool the records of an answer lie; the server forks a child with limits of
memory, CPU and output, which reads the record and writes the result to a file in memory: a line of JSON with the facts,
then the page, a line for each slice of its links. No pickle: strangers' bytes went through that child. The server says
how the child ended, and hands the file over. Server and child inherit the walls of the worker, and die with the worker.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

from crawl_lib.config import Config
from crawl_lib.errors import KrakeError, StoppedError, printable
from crawl_lib.parse import ParsedPage, count_links, parse_head
from crawl_lib.records import Fetched
from crawl_lib.segment import Position
from crawl_lib.states import Outcome
from crawl_lib.walls import fork_child, refuse_calls, set_limits
from crawl_lib.warc import read_one
from crawl_lib.worker.reading import Pieces, Reader, Reading, slices

DATA_BYTES = 128 << 20
"""Memory of a child, without the worker's memory: above, its allocations fail."""
CPU_S = 10
WALL_S = 120
ANSWER_BYTES = 32 << 20
DESCRIPTORS = 64
_MAX_MESSAGE_BYTES = 160_000
_POLL_MS = 100


class Aside:
    """The worker's side. `directory`: the spool; `own_bytes`: the worker's memory (`data_bytes`).

    `stop`: asked every 100 ms while an answer is waited for. `fileno` is ready to read when an answer is there.
    """

    def __init__(
        self,
        config: Config,
        directory: Path,
        own_bytes: int,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._directory = directory
        self._stop = stop
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sys.stderr.flush()
        self._pid = fork_child(partial(_serve, theirs, Reader(config), own_bytes + DATA_BYTES))
        theirs.close()
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def __enter__(self) -> "Aside":
        return self

    def __exit__(self, *rest: object) -> None:
        """End the server, with its current work."""
        self._socket.close()
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._socket.fileno()

    def is_ready(self, wait_ms: int = 0) -> bool:
        """Return whether `answer` would return at once.

        `wait_ms`: waits so long for that.
        """
        return bool(self._poll.poll(wait_ms))

    def ask(self, fetched: Fetched, position: Position, *, links: bool) -> None:
        """Ask the reader for an answer's content and page.

        `links`: read the page, if any. Only one request may be open at a time.
        """
        path, head_bytes = str(self._directory / position.warc_file), len(fetched.head)
        message = [
            path,
            position.offset,
            position.length,
            head_bytes,
            fetched.url,
            fetched.outcome,
            fetched.truncated,
        ]
        self._socket.send(json.dumps([*message, links, fetched.time]).encode())

    def answer(self) -> tuple[Reading, Pieces] | None:
        """Wait for the reading, and the pieces of the page, if any.

        None: the child died or exceeded a limit. Raises KrakeError without a server, StoppedError if the worker is to
        stop before an answer is there.
        """
        while not self.is_ready(_POLL_MS):  # a loop makes the socket one that does not wait
            if self._stop():
                raise StoppedError(
                    "stopped while a large page was read; run the task again to go on"
                )
        data, descriptors, _, _ = socket.recv_fds(self._socket, _MAX_MESSAGE_BYTES, 1)
        if not data:
            raise KrakeError("the process that reads large pages died; run the task again")
        file = os.fdopen(descriptors[0], "rb")
        if json.loads(data)["code"]:
            file.close()
            return None
        file.seek(0)
        mime, length, digest, error = json.loads(file.readline())
        return Reading(mime, length, bytes.fromhex(digest), error, None), _pieces(file)


def _pieces(file: IO[bytes]) -> Pieces:
    start = 0
    with file:
        for line in file:
            page = ParsedPage.from_json(line)
            for place, piece in slices(page):  # the child may have written more than a slice
                yield start + place, piece
            start += count_links(page.links)


def _serve(task: socket.socket, reader: Reader, most_bytes: int) -> int:
    """Fork a child for each message, until the socket closes."""
    # Only the socket and standard error are open: the ends of the worker's pipes and locks say who is alive.
    for number, end in enumerate(
        os.pipe()
    ):  # nothing is read or written there, and no file is opened for it
        os.dup2(end, number)
    os.closerange(3, task.fileno())
    os.closerange(task.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the server ends with the worker
    gc.freeze()
    while message := task.recv(_MAX_MESSAGE_BYTES):
        file = os.memfd_create("answer")
        pid = fork_child(partial(_read_limited, json.loads(message), reader, file, most_bytes))
        ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        socket.send_fds(task, [json.dumps({"code": ended}).encode()], [file])
        os.close(file)
    return 0


def _read_limited(message: list[Any], reader: Reader, file: int, most_bytes: int) -> int:
    try:
        for number in (
            signal.SIGXCPU,
            signal.SIGALRM,
        ):  # not SIGTERM: sent to all of a group, it is not the page's
            signal.signal(number, signal.SIG_DFL)
        set_limits(DATA=most_bytes, CPU=CPU_S, FSIZE=ANSWER_BYTES, CORE=0, NOFILE=DESCRIPTORS)
        refuse_calls(forks=False, internet=False, limits=False)
        signal.alarm(WALL_S)
        with os.fdopen(file, "wb") as out:
            _read(message, reader, out)
    except BaseException as error:
        # A page may take all memory there is: no more than a line.
        line = printable(f"{message[4]}: read aside: {type(error).__name__}: {error}")
        os.write(2, f"{line}\n".encode(errors="replace"))
        return 1
    return 0


def _read(message: list[Any], reader: Reader, out: IO[bytes]) -> None:
    path, offset, length, head_bytes, url, outcome, truncated, links, time = message
    with Path(path).open("rb") as file:
        file.seek(offset)
        block = read_one(file.read(length), offset, path).block
    fetched = Fetched(
        url,
        time,
        Outcome(outcome),
        head=block[:head_bytes],
        body=block[head_bytes:],
        truncated=truncated,
    )
    del block  # its memory is the page's
    headers = parse_head(fetched.head)
    content = reader.content(headers, fetched)
    found = reader.facts(headers, fetched, content)
    fetched.body = b""
    assert found.digest is not None
    line = json.dumps([found.mime, found.length, found.digest.hex(), found.error])
    out.write(line.encode() + b"\n")
    if links and reader.is_page(headers, fetched.outcome, found.mime, content.data):
        for _, piece in slices(reader.page(headers, url, content, found.mime, time)):
            out.write(piece.to_json().encode() + b"\n")
