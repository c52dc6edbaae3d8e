"""What an object store shows when a process is killed, or sleeps, at each of its requests; see `KillsContract`."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from crawl_lib.errors import PathNotFoundError, StorageError, TargetExistsError
from crawl_lib.storage.s3 import S3Storage
from crawl_lib.storage.s3_claims import Times
from tests.s3 import S3Server


class KilledError(BaseException):
    """A process that dies: nothing of the store catches it."""


FILES = {"a": b"", "manifest.json": b"manifest"}
AT_ONCE = Times(takeover_s=0.0, patience_s=0.0)
"""Of a task that takes over each claim."""


def killing(server: S3Server, root: str, number: int, only: str = "") -> S3Storage:
    """A store whose process dies before its request of a number, counted from 0; `only`: of an operation."""
    left = [number]

    def hook(operation: str, key: str) -> None:
        if only not in ("", operation):
            return
        if left[0] == 0:
            raise KilledError(f"{operation} {key}")
        left[0] -= 1

    return server.store(root, hook=hook)


def filled(store: S3Storage, folder: str) -> None:
    for name, data in FILES.items():
        store.write_bytes(f"{folder}/{name}", data)


def shown(store: S3Storage, folder: str) -> dict[str, bytes] | None:
    """What a reader sees of a folder, None if it is not there; its parent and all ways to look agree."""
    parent, _, name = folder.rpartition("/")
    is_there = name in [entry.name for entry in store.list(parent)]
    assert store.exists(folder) == is_there
    if not is_there:
        assert not store.exists(f"{folder}/manifest.json")
        with pytest.raises(PathNotFoundError):
            store.read_bytes(f"{folder}/a")
        with pytest.raises(PathNotFoundError):
            store.list(folder)
        return None
    return {entry.name: store.read_bytes(f"{folder}/{entry.name}") for entry in store.list(folder)}


def kills(
    server: S3Server, act: Callable[[S3Storage], object], step: int
) -> Iterator[tuple[str, bool]]:
    """Kill an act at each `step`-th of its requests in turn; the root of each try, and whether it was killed."""
    for number in itertools.count(0, step):
        root = uuid.uuid4().hex
        filled(server.store(root), "x/.h")
        try:
            act(killing(server, root, number))
        except KilledError:
            yield root, True
        else:
            yield root, False
            return


def shown_names(store: S3Storage, folder: str) -> list[str]:
    return [entry.name for entry in store.list(folder)]


class KillsContract:
    """Subclasses give the fixture `server`. `step`: 1 kills at each request, 5 at each fifth."""

    step = 1

    @pytest.fixture
    def server(self) -> S3Server:
        raise NotImplementedError("a server gives this fixture")

    def test_a_rename_that_is_killed_shows_all_or_nothing_and_goes_on(self, server):
        """Another source never takes the place in the middle; where it may, it gets all of it."""
        for root, was_killed in kills(server, lambda store: store.rename("x/.h", "x/t"), self.step):
            assert shown(server.store(root), "x/t") in (None, FILES)
            now = itertools.count()
            other = server.store(
                root, clock=lambda now=now: float(next(now)), sleep=lambda seconds: None
            )
            other.write_bytes("x/.other/manifest.json", b"other")
            with suppress(StorageError):
                other.rename("x/.other", "x/t")
            if shown(server.store(root), "x/t") is None:
                assert was_killed
                server.store(root).rename("x/.h", "x/t")
            assert shown(server.store(root), "x/t") in (FILES, {"manifest.json": b"other"})

    def test_tasks_that_rename_one_folder_to_two_names_make_one(self, server):
        """The second one comes before each request of the first in turn; or the first one is killed there."""
        for number, was_killed in itertools.product(range(0, 40, self.step), (False, True)):
            root, count = uuid.uuid4().hex, [0]
            filled(server.store(root), "x/.h")

            def hook(
                *_: object, root=root, count=count, number=number, was_killed=was_killed
            ) -> None:
                count[0] += 1
                if count[0] == number + 1:
                    if was_killed:
                        raise KilledError
                    with suppress(PathNotFoundError):
                        server.store(root).rename("x/.h", "x/u")

            with suppress(PathNotFoundError, KilledError):
                server.store(root, hook=hook).rename("x/.h", "x/t")
            if was_killed:
                with suppress(PathNotFoundError):
                    server.store(root).rename("x/.h", "x/u")
            found = [shown(server.store(root), path) for path in ("x/t", "x/u")]
            assert found in ([FILES, None], [None, FILES]), number
            assert len(server.store(root).list("x")) == 1
            if count[0] <= number:
                break

    def test_a_deletion_that_is_killed_shows_all_or_nothing_and_goes_on(self, server):
        """Its folder may be made anew, also if nobody deletes it again."""
        for root, _ in kills(server, lambda store: store.delete("x/.h"), self.step):
            found = shown(server.store(root), "x/.h")
            assert found in (None, FILES)
            if found:
                server.store(root).delete("x/.h")
            server.store(root).write_bytes("x/.h/new", b"1")
            assert shown_names(server.store(root), "x/.h") == ["new"]

    def test_a_source_whose_target_another_task_takes_over_is_kept(self, server):
        """Also where the first task was killed just before its commit."""
        for root, was_killed in kills(server, lambda store: store.rename("x/.h", "x/t"), self.step):
            server.store(root).write_bytes("x/.other/manifest.json", b"other")
            with suppress(TargetExistsError):
                server.store(root, AT_ONCE).rename("x/.other", "x/t")
            taken = shown(server.store(root), "x/t")
            assert taken == FILES or was_killed
            with suppress(TargetExistsError, PathNotFoundError):
                server.store(root).rename("x/.h", "x/t")
            assert shown(server.store(root), "x/t") == taken
            assert shown(server.store(root), "x/.h") == (None if taken == FILES else FILES)

    def test_a_claim_that_nobody_renews_is_taken_over_and_the_late_copy_makes_no_object(
        self, server
    ):
        """The first holder stops before each of its requests in turn, and goes on when the second one has committed."""
        for number in itertools.count(0, self.step):
            root = uuid.uuid4().hex
            filled(server.store(root), "x/.h")
            server.store(root).write_bytes("x/.other/manifest.json", b"other")
            count, seen, now = [0], [], [0.0]

            def hook(*_: object, root=root, count=count, seen=seen, now=now, number=number) -> None:
                count[0] += 1
                if count[0] - 1 == number:
                    now[0] += 1000
                    with suppress(TargetExistsError):
                        server.store(root, AT_ONCE).rename("x/.other", "x/t")
                    seen.append(shown(server.store(root), "x/t"))

            with suppress(StorageError):
                server.store(root, hook=hook, clock=lambda now=now: now[0]).rename("x/.h", "x/t")
            assert shown(server.store(root), "x/t") == (seen[0] if seen else FILES), number
            if not seen:
                return
            with suppress(TargetExistsError, PathNotFoundError):
                server.store(root).rename("x/.h", "x/t")
            assert shown(server.store(root), "x/.h") == (None if seen[0] == FILES else FILES), (
                number
            )
