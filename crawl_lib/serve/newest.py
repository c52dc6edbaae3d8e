"""The index that answers requests. A thread opens each new version, so no request waits for the opening."""

import logging
from collections.abc import Callable
from threading import Event, Thread
from typing import TypeVar

from crawl_lib.errors import InputError, KrakeError
from crawl_lib.search import IndexReader, OpenIndex

INTERVAL_S = 2.0
FIRST_S = 5.0
"""The longest wait for the first look. A store elsewhere may need minutes for its copy of the index."""
OPENING = "The index is being opened. Try again in a moment."
NO_INDEX = (
    "There is no index yet. Make one with krake index update: this page finds it within seconds."
)
BROKEN_INDEX = "The index cannot be opened. The log of this server says why."
T = TypeVar("T")
log = logging.getLogger(__name__)


class NewestIndex:
    """The newest version of the index that opens. `problem`: why no version opens, as a sentence."""

    def __init__(self, reader: IndexReader) -> None:
        """Open nothing yet."""
        self._reader = reader
        self._index: OpenIndex | None = None
        self._looked = Event()
        self.problem = OPENING

    @property
    def index(self) -> OpenIndex | None:
        """The version that answers; None before the first version."""
        return self._index

    def ask(self, index: OpenIndex, question: Callable[[OpenIndex], T]) -> T:
        """Ask an index, or an older version after damage.

        Damaged bytes make the question fail. If all files are whole, raises the question's own error. Also raises the
        errors of `IndexReader.ask`.
        """
        try:
            return question(index)
        except (ValueError, OSError):
            return self._reader.ask(question)

    def look(self) -> None:
        """Look for a newer version."""
        try:
            self._index = self._reader.current()
        except InputError:
            self._index, self.problem = None, NO_INDEX
        except KrakeError as error:
            self._index, self.problem = None, BROKEN_INDEX
            log.error("no version of the index can be opened: %s", error)

    def watch(self, stop: Event) -> None:
        """Look every two seconds in a thread, until `stop`.

        Wait for the first look, but not long.
        """
        Thread(target=self._watch, args=(stop,), name="newest-index", daemon=True).start()
        self._looked.wait(FIRST_S)

    def _watch(self, stop: Event) -> None:
        while not stop.is_set():
            try:
                self.look()
            except Exception:  # an error of a library must not end the looking
                log.exception("the look for a newer index failed")
            self._looked.set()
            stop.wait(INTERVAL_S)
