"""The index that answers: the newest version, looked for every two seconds while searches go on."""

import logging
import time
from collections.abc import Callable
from functools import partial
from threading import Lock, Thread
from typing import Protocol, TypeVar

from crawl_lib.errors import DamagedFileError, InputError, KrakeError
from crawl_lib.search.opened import OpenIndex

INTERVAL_S = 2.0
T = TypeVar("T")
log = logging.getLogger(__name__)


class IndexSource(Protocol):
    """Source of versions of the index."""

    def newest(self, bad: frozenset[int]) -> int | None:
        """Return the newest complete version not in `bad`, or None.

        Raises KrakeError.
        """

    def open(self, number: int) -> OpenIndex:
        """Open a version. Raises KrakeError."""

    def verify(self, number: int) -> None:
        """Check the digests of a version's files.

        Raises DamagedFileError where one differs, StorageError.
        """


def in_background(work: Callable[[], None]) -> None:
    """Run work in a thread that does not delay the exit."""
    Thread(target=work, daemon=True, name="verify-index").start()


class IndexReader:
    """Gives the index to search in. Any number of threads may ask.

    Files of a version are compared with the digests during answers; after a difference, an older version answers.
    """

    def __init__(
        self,
        source: IndexSource,
        clock: Callable[[], float] = time.monotonic,
        background: Callable[[Callable[[], None]], None] | None = in_background,
    ) -> None:
        """Open nothing yet.

        `clock`: monotonic seconds; `background`: runs work of minutes, None never.
        """
        self._source, self._clock, self._background = source, clock, background
        self._looking = Lock()
        self._looked_s = -INTERVAL_S
        self._open: OpenIndex | None = None
        self._bad: frozenset[int] = frozenset()
        self._damage: DamagedFileError | None = None

    def current(self) -> OpenIndex:
        """Return the newest version that opens.

        An older version answers until a newer version is open. Raises InputError before the first version, and
        DamagedFileError or StorageError where none can be opened.
        """
        opened = self._open
        if opened is None:
            with self._looking:
                return self._open or self._look()
        if self._clock() - self._looked_s >= INTERVAL_S and self._looking.acquire(blocking=False):
            try:
                return self._look()
            except KrakeError as error:
                log.warning("version %d of the index goes on answering: %s", opened.number, error)
            finally:
                self._looking.release()
        return opened

    def ask(self, question: Callable[[OpenIndex], T]) -> T:
        """Ask the newest version, or an older version after damage.

        Damaged bytes make Tantivy raise ValueError, or give texts that are no UTF-8. Raises as `current` does, and
        errors of the question if all files are whole.
        """
        while True:
            index = self.current()
            try:
                return question(index)
            except (ValueError, OSError):
                self._verify(index.number)
                if index.number not in self._bad:
                    raise

    def _look(self) -> OpenIndex:
        self._looked_s = self._clock()
        number = self._source.newest(self._bad)
        if number is None and self._open is None:
            if self._damage is not None:
                raise DamagedFileError(
                    f"{self._damage}; no other version answers"
                ) from self._damage
            raise InputError("there is no index yet; run `krake index update`")
        if number is not None and (self._open is None or self._open.number != number):
            self._open = self._opened(number)
            if self._background is not None:
                self._background(partial(self._verify, self._open.number))
        assert self._open is not None
        return self._open

    def _opened(self, number: int) -> OpenIndex:
        """Open a version, or an older version after damage.

        The older version is used only if no other version is open.
        """
        try:
            return self._source.open(number)
        except DamagedFileError as error:
            bad = self._bad | {number}
            older = self._source.newest(bad) if self._open is None else None
            if older is None:
                raise
            log.warning(
                "version %d of the index does not answer, an older one does: %s", number, error
            )
            self._bad = bad
        return self._opened(older)

    def _verify(self, number: int) -> None:
        try:
            self._source.verify(number)
        except DamagedFileError as error:
            log.error("version %d of the index answers no longer: %s", number, error)
            with self._looking:
                self._bad |= {number}
                self._damage = error
                if self._open is not None and self._open.number == number:
                    self._open = None
        except KrakeError as error:
            log.warning(
                "the digests of version %d of the index were not compared: %s", number, error
            )
