"""Claims: rename and deletion of a folder of an object store, by many requests, as one step.

The object `.claim.<name>` next to a folder names the work on the folder: its source, or that it is deleted. The claim
hides the folder meanwhile. A conditional PUT decides between contenders, and deleting the claim is the commit.

The claim to the source decides between tasks that rename one folder to different names; a later task continues the
begun rename, and the earlier task waits. MOVED, where no claim to the target is held for this source, says that the
rename is committed, and hides the source until its deletion. So before a task takes over the claim to a target, the
task deletes the claim to the earlier source: an earlier task that wakes cannot say MOVED any more.

The claim to the target first looks, and hides nothing: only what is not there may be made. So a claim that is left by a
kill never hides a committed folder, and nothing of such a folder is taken for the rubbish of a broken try.

Each state of a claim has a random number, and so another ETag. Its holder renews it each `RENEW_S`, and gives up after
`HOLD_S` without a renewal, by its own clock. Another one takes over a claim of `TAKEOVER_S` without a renewal, by the
server's clock, and ends the uploads of the old holder: what the old one sends late makes no object.
"""

import json
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from crawl_lib.errors import PathNotFoundError, StorageError, TargetExistsError
from crawl_lib.storage.s3_client import S3Client, server_time

PREFIX = ".claim."
RENEW_S = 60.0
HOLD_S = 300.0
TAKEOVER_S = 900.0
PATIENCE_S = 2.0
LOOK, COPY, DELETE = "look", "copy", "delete"
MOVE, MOVED = "move", "moved"


@dataclass(frozen=True)
class Times:
    """Limits in seconds: when a claim is renewed, when the holder gives up, when another task takes over.

    `patience_s`: how long a second task waits for another rename of the same folder, before continuing the rename.
    """

    renew_s: float = RENEW_S
    hold_s: float = HOLD_S
    takeover_s: float = TAKEOVER_S
    patience_s: float = PATIENCE_S


@dataclass(frozen=True)
class PathClaim:
    """Content of a claim. `other`: the other path of a rename, "" for a deletion; `does`: what is done.

    LOOK, then COPY: to the target of a rename. MOVE, and MOVED from just before the commit on: to its source.
    """

    other: str
    does: str

    @property
    def hides(self) -> bool:
        """Whether the folder is not to be seen."""
        return self.does in {COPY, DELETE}

    def encoded(self) -> bytes:
        """Return the bytes of the object, different at each call."""
        return json.dumps({**asdict(self), "number": uuid.uuid4().hex}, sort_keys=True).encode()


@dataclass(frozen=True)
class SeenClaim:
    """A claim as read, with ETag and age in seconds by the server's clock."""

    claim: PathClaim
    etag: str
    age_s: float


def claim_path(path: str) -> str:
    """Return the path of the claim to a path."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{PREFIX}{name}"


def read_claim(client: S3Client, path: str) -> SeenClaim | None:
    """Return the claim to a path, or None.

    Raises StorageError for an object that is no claim.
    """
    place = claim_path(path)
    try:
        answer, data = _read(client, place)
    except PathNotFoundError:
        return None
    try:
        said = json.loads(data)
        claim = PathClaim(str(said["other"]), str(said["does"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{client.show(place)}: is no claim of Krake; delete it if nothing is renamed"
        ) from error
    return SeenClaim(
        claim,
        client.etag(place, answer),
        (server_time(answer) - answer["LastModified"]).total_seconds(),
    )


def _read(client: S3Client, path: str) -> tuple[Any, bytes]:
    """Return a GET's answer and its bytes, repeatedly if necessary."""
    what, begun = "cannot be read", client.clock()
    while True:
        answer = client.ask(what, path, "get_object")
        try:
            return answer, answer["Body"].read()
        except client.broken as error:
            client.pause(what, path, begun, type(error).__name__)


class ClaimLostError(StorageError):
    """The claim of a rename or deletion was taken by another task. For this package."""


class Holder:
    """Who holds the claim to a path: made by `hold`, kept by `keep`, and ended by `end`."""

    def __init__(
        self, client: S3Client, path: str, claim: PathClaim, etag: str, times: Times
    ) -> None:
        self._client, self._path, self.claim, self._times = client, path, claim, times
        self._etag, self._renewed_s = etag, client.clock()

    def keep(self) -> None:
        """Renew the claim if a minute is over.

        Raises StorageError if another task has taken the claim, or after too long without a renewal.
        """
        age_s = self._age_s()
        if age_s > self._times.renew_s:
            self.become(self.claim)

    def _age_s(self) -> float:
        """Return the seconds since the last renewal.

        Raises StorageError after too long a time.
        """
        age_s = self._client.clock() - self._renewed_s
        if age_s > self._times.hold_s:
            raise StorageError(f"{self._where()}: could not be renewed in time; run the task again")
        return age_s

    def become(self, claim: PathClaim) -> None:
        """Replace the claim. Raises StorageError if another one has taken it."""
        begun = self._client.clock()
        try:
            self._etag = self._client.replace(claim_path(self._path), claim.encoded(), self._etag)
        except (TargetExistsError, PathNotFoundError) as error:
            raise self._lost("was taken by another task") from error
        self.claim, self._renewed_s = claim, begun

    def end(self) -> None:
        """Delete the claim, to commit the work.

        Raises StorageError if another one has taken it.
        """
        self._age_s()
        try:
            self._client.delete(claim_path(self._path), self._etag)
        except TargetExistsError as error:
            raise self._lost("was taken by another task") from error

    def _lost(self, why: str) -> ClaimLostError:
        return ClaimLostError(f"{self._where()}: {why}; run the task again")

    def _where(self) -> str:
        return self._client.show(claim_path(self._path))


def hold(client: S3Client, path: str, claim: PathClaim, times: Times) -> Holder | SeenClaim:
    """Hold a path for a claim, or return the live claim.

    A live claim is returned if waiting for it is impossible. The claim of an earlier try for the same source is taken
    up, and so is a claim that no task renews. A rename waits for another one: who is told that a target exists goes on
    to read it. Raises StorageError after `dfs.wait_s`.
    """
    begun = client.clock()
    while True:
        try:
            return Holder(
                client, path, claim, client.create(claim_path(path), claim.encoded()), times
            )
        except TargetExistsError:
            seen = read_claim(client, path)
        if seen is None:
            continue
        if seen.claim.other != claim.other and seen.age_s < times.takeover_s:
            if seen.claim.does == DELETE or (seen.claim.does == COPY and claim.does == DELETE):
                return seen
            if claim.does != DELETE or seen.claim.does == LOOK:
                client.pause(
                    "cannot be claimed",
                    path,
                    begun,
                    f"that a rename with {seen.claim.other} goes on",
                )
                continue
        if seen.claim.does == COPY and seen.claim.other != claim.other:
            _free_source(client, seen.claim.other, path)
        holder = Holder(client, path, seen.claim, seen.etag, times)
        holder.become(PathClaim(claim.other, seen.claim.does if seen.claim.hides else claim.does))
        return holder


def _free_source(client: S3Client, source: str, target: str) -> None:
    """Delete the source's claim of a rename taken over by another task."""
    seen = read_claim(client, source)
    if seen is not None and seen.claim in {PathClaim(target, MOVE), PathClaim(target, MOVED)}:
        with suppress(TargetExistsError):  # a third task goes on with the rename
            client.delete(claim_path(source), seen.etag)
