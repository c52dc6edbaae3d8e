"""Notes on the DFS of the keys whose URLs a node holds: the knowledge of other machines about the node's queue.

`krake fsck --node NODE` leaves a note: `<crawl>/held/<node>/<id>/` with `keys` (20 bytes each, ascending, each once)
and `note.json`, visible only when complete. A task first takes its node's note away. Check and task hold the node's
lock. So while a note exists, the node has sent no key outside of the note to the key servers.

A check reads the notes, then the key tables, and then looks whether the notes still exist: a node that began to work
meanwhile has taken its note away before its first key was sent. A note has an id, so a newer note is no sign that the
node rested.
"""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256

from crawl_lib.crawldir.directory import CrawlDirectory, FileName
from crawl_lib.crawldir.settled import SettledNotes
from crawl_lib.dataclass import dataclass
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.keys import KEY_BYTES
from crawl_lib.sealed import sealed_json, unsealed
from crawl_lib.urlfiles import TakenIn
from crawl_lib.version import code_digest

KEYS_FILE = "keys"
NOTE_FILE = "note.json"
_READ_KEYS = 50_000


@dataclass(frozen=True)
class HeldNote:
    """The content of a note.

    `count`, `sha256`: of the keys. `taken_in`: the sources that the node had taken in. `lost`: whether a repair found
    URLs of the node gone, with keys not dropped yet. `take`: folder of the open take, or "". `code`, `config`: digests
    of Krake's code and of the shared options at the time of the note.
    """

    node: str
    note_id: str
    count: int
    sha256: str
    taken_in: TakenIn
    lost: bool
    take: str
    code: str
    config: str

    def path(self, crawl: CrawlDirectory) -> str:
        """Return the note's folder, relative to the storage's root."""
        return crawl.at(FileName.HELD, self.node, self.note_id)

    def is_of(self, config_digest: str) -> bool:
        """Return whether the same Krake and config made the note.

        Another version may hold other URLs, or have other keys.
        """
        return (self.code, self.config) == (code_digest(), config_digest)

    def is_there(self, crawl: CrawlDirectory) -> bool:
        """Return whether no task has worked on the node since the note."""
        return crawl.storage.exists(f"{self.path(crawl)}/{NOTE_FILE}")


@dataclass(frozen=True)
class HeldNotes:
    """The note of the keys that a node holds. Only the holder of the node's lock changes the note."""

    crawl: CrawlDirectory
    node: str

    @staticmethod
    def command(node: str) -> str:
        """Return the command that leaves a node's note."""
        return f"krake fsck --node {node}"

    def write(
        self,
        blocks: Iterable[bytes],
        *,
        taken_in: TakenIn,
        lost: bool,
        take: str,
        config: str,
    ) -> HeldNote:
        """Replace the note.

        `blocks`: the keys in a row, ascending, each once; the rest: see `HeldNote`.
        """
        crawl, node = self.crawl, self.node
        self.take_away()
        note_id, digest, size = uuid.uuid4().hex, sha256(), 0
        hidden = crawl.at(FileName.HELD, node, f".{note_id}")
        with crawl.storage.open_write(f"{hidden}/{KEYS_FILE}") as file:
            for block in blocks:
                file.write(block)
                digest.update(block)
                size += len(block)
        note = HeldNote(
            node=node,
            note_id=note_id,
            count=size // KEY_BYTES,
            sha256=digest.hexdigest(),
            taken_in=taken_in,
            lost=lost,
            take=take,
            code=code_digest(),
            config=config,
        )
        content = sealed_json({**vars(note), "taken_in": taken_in.to_mapping()})
        crawl.storage.write_bytes(f"{hidden}/{NOTE_FILE}", content)
        reached("crawldir.held.written")
        crawl.storage.rename(hidden, note.path(crawl))
        reached("crawldir.held.noted")
        return note

    def read(self) -> HeldNote | None:
        """Read the note, None without one.

        Raises DamagedFileError naming the path of the note.
        """
        crawl, node = self.crawl, self.node
        names = crawl.names(FileName.HELD, node)
        if not names:
            return None
        path = crawl.at(FileName.HELD, node, names[-1], NOTE_FILE)
        try:
            data = crawl.storage.read_bytes(path)
        except PathNotFoundError:
            return None  # the note was taken away since the folder was listed
        try:
            value = unsealed(data)
            note = HeldNote(**{**value, "taken_in": TakenIn(**value["taken_in"])})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(path, node, f"is not a note of held keys: {error}") from error
        if (note.node, note.note_id) != (node, names[-1]):
            raise _damaged(path, node, f"is a note of node {note.node}, made as {note.note_id}")
        return note

    def keys(self, note: HeldNote) -> Iterator[list[bytes]]:
        """Read the keys of a note in pieces, in constant memory.

        Raises DamagedFileError naming the path if, at the end, the keys differ from the noted keys; PathNotFoundError
        if the note was taken away.
        """
        crawl = self.crawl
        path, digest, size = f"{note.path(crawl)}/{KEYS_FILE}", sha256(), 0
        with crawl.storage.open_read(path) as file:
            while block := file.read(_READ_KEYS * KEY_BYTES):
                digest.update(block)
                size += len(block)
                yield [
                    block[at : at + KEY_BYTES]
                    for at in range(0, len(block) - len(block) % KEY_BYTES, KEY_BYTES)
                ]
        if size != note.count * KEY_BYTES or digest.hexdigest() != note.sha256:
            raise _damaged(
                path, note.node, f"its {size} bytes are not the {note.count} keys that were noted"
            )

    def take_away(self) -> None:
        """Delete the note, also an unfinished note, before a task begins."""
        self.crawl.storage.delete(self.crawl.at(FileName.HELD, self.node))

    def unsettle(self) -> None:
        """Delete a node's note before a repair changes its queue.

        The mark of a retired node stays.
        """
        settled, mark = SettledNotes(self.crawl, self.node), None
        with suppress(DamagedFileError):
            mark = settled.read()
        if mark is None or not mark.retired:
            settled.delete()
        self.take_away()


def _damaged(path: str, node: str, problem: str) -> DamagedFileError:
    return DamagedFileError(
        f"{path}: {problem}; run `{HeldNotes.command(node)}` on the node's machine to write the note again"
    )
