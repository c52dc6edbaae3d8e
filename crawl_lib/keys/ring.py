"""The ring that the key tables were filled for: a note on each server, compared with the config before keys are used.

The number of servers, their order and `replication` decide where a key lies. After a change of these in the config,
lookups would ask the wrong servers, and pages would be crawled again. Each server therefore keeps a note of its place,
the number of servers, `replication`, a generation that each change raises by one, and the name of the crawl
(`crawl.name`): two crawls in one database would mix up their pages.

`ShardedKeyStore.require_ring` writes the notes where no server has one (new tables, or tables of an older version),
gives a server that came back with an empty disk its note again, and refuses anything else: `krake keys reshard`
(`keys.moving`) moves the keys and writes new notes. While it is under way the notes say so, and that is refused too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any

from crawl_lib.dataclass import dataclass
from crawl_lib.errors import KeyTablesError
from crawl_lib.keys.server import KeyServer
from crawl_lib.sealed import sealed_json, unsealed

RESHARD = "run `krake keys reshard`"


@dataclass(frozen=True)
class Ring:
    """Servers in their order, by `names` (only for messages), and how many of them hold each key.

    `crawl`: whose keys they are; None in notes of older versions, until the next task of a crawl writes its name.
    """

    generation: int
    names: tuple[str, ...]
    replication: int
    crawl: str | None = field(default=None, compare=False)

    def same_places(self, other: "Ring") -> bool:
        """Say whether both rings hold keys at the same places.

        Names of servers do not matter.
        """
        return (len(self.names), self.replication) == (len(other.names), other.replication)

    def to_text(self) -> str:
        """Return the ring for messages."""
        return f"{', '.join(self.names)} with replication {self.replication}"


@dataclass(frozen=True)
class RingNote:
    """The note of one server.

    `place`: its own in `ring`, None for a server that joins. `moving_to`: the ring that a reshard under way is for.
    """

    ring: Ring | None
    place: int | None
    moving_to: Ring | None = None

    def to_text(self) -> str:
        """Return the note for the server, with its digest."""
        return sealed_json(asdict(self)).decode().rstrip("\n")


def read_ring(server: KeyServer) -> RingNote | None:
    """Return a server's note, or None.

    Raises KeyTablesError for a malformed note.
    """
    text = server.read_note()
    if text is None:
        return None
    try:
        value = unsealed(text.encode())
        return RingNote(_ring(value["ring"]), value["place"], _ring(value["moving_to"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KeyTablesError(
            f"{server.name}: the note of its place among the key servers cannot be read ({error!r}): if"
            " key_storage.servers is as it was when the keys were written, run `krake fsck --repair`, which"
            " writes it again"
        ) from error


def _ring(value: Mapping[str, Any] | None) -> Ring | None:
    if value is None:
        return None
    return Ring(
        value["generation"], tuple(value["names"]), value["replication"], value.get("crawl")
    )


def look_at(server: KeyServer) -> tuple[bool, RingNote | None]:
    """Return whether a server has key tables, and its note.

    Raises KeyStoreError.
    """
    note = read_ring(server)
    return note is not None or server.exists(), note


def rewrite_notes(servers: Sequence[KeyServer], replication: int) -> list[str]:
    """Write unreadable notes again.

    They follow the other servers' notes, or without any, the config. Returns the names of those servers. The caller
    believes that the config is as it was when the keys were written, or when a change of the key servers began that is
    under way: then a server has the place where the others' notes name it, and without one it joins. Raises
    KeyServerDownError if one does not answer.
    """
    notes, broken = [], []
    for place, server in enumerate(servers):
        try:
            notes.append(read_ring(server))
        except KeyTablesError:
            broken.append(place)
    ring = next(
        (note.ring for note in notes if note and note.ring), Ring(0, names_of(servers), replication)
    )
    moving_to = next((note.moving_to for note in notes if note and note.moving_to), None)
    for place in broken:
        own: int | None = place
        if moving_to is not None:
            own = (
                ring.names.index(servers[place].name) if servers[place].name in ring.names else None
            )
        servers[place].write_note(RingNote(ring, own, moving_to).to_text())
    return [servers[place].name for place in broken]


def names_of(servers: Iterable[KeyServer]) -> tuple[str, ...]:
    """Return the servers' names, in order."""
    return tuple(server.name for server in servers)


def other_crawl(server: KeyServer, note: RingNote | None, crawl: str | None) -> str | None:
    """Say why a server's keys belong to another crawl, or None.

    None: the name is `crawl`, or the keys have no name yet.
    """
    noted = (
        {ring.crawl for ring in (note.ring, note.moving_to) if ring and ring.crawl}
        if note and crawl
        else set()
    )
    if noted <= {crawl}:
        return None
    return (
        f"key_storage: {server.name} has keys of the crawl {noted.pop()!r}, and crawl.name is {crawl!r}: name another"
        " database, or other files"
    )


def ring_problem(
    servers: Sequence[KeyServer], replication: int, notes: Mapping[int, RingNote | None]
) -> str | None:
    """Say why the config does not fit the tables, or None.

    The reason is one sentence with a remedy.

    `notes`: of the servers that answer and have tables, by place; None where a server has no note.
    """
    wanted = Ring(0, names_of(servers), replication)
    noted = {place: note for place, note in notes.items() if note is not None}
    newest = max((note.ring.generation for note in noted.values() if note.ring), default=0)
    for place, note in noted.items():
        name = servers[place].name
        if note.moving_to is not None:
            return (
                f"{name}: a change of the key servers is under way: {RESHARD}, to finish the change"
            )
        if note.ring is None or note.place != place or not note.ring.same_places(wanted):
            before = "none" if note.ring is None else note.ring.to_text()
            return (
                f"{name}: the key servers changed: its keys were written for {before}, and the config says"
                f" {wanted.to_text()}: {RESHARD}, or put key_storage back as it was"
            )
        if note.ring.generation < newest:
            return (
                f"{name}: was away while the key servers were changed, its keys are old: delete its tables, then run"
                " `krake fsck --repair`"
            )
    return None
