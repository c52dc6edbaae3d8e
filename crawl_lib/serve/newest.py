"""The index that answers requests. A thread opens each new version, so no request waits for the opening."""

import logging
from threading import Event, Thread

from crawl_lib.errors import InputError, KrakeError
from crawl_lib.search import IndexReader, OpenIndex

INTERVAL_S = 2.0
log = logging.getLogger(__name__)


class NewestIndex:
    """The newest version of the index that opens."""

    def __init__(self, reader: IndexReader) -> None:
        """Open nothing yet."""
        self._reader = reader
        self._index: OpenIndex | None = None
        self.is_missing = True
        """Whether no index has been made yet. The log says why an existing index does not open."""

    @property
    def index(self) -> OpenIndex | None:
        """The version that answers; None before the first version."""
        return self._index

    def look(self) -> None:
        """Look for a newer version."""
        try:
            self._index = self._reader.current()
            self.is_missing = False
        except InputError:
            self._index, self.is_missing = None, True
        except KrakeError as error:
            self._index, self.is_missing = None, False
            log.error("no version of the index can be opened: %s", error)

    def watch(self, stop: Event) -> None:
        """Look every two seconds, in a thread that ends when `stop` is set."""

        def look_again() -> None:
            while not stop.wait(INTERVAL_S):
                self.look()

        Thread(target=look_again, name="newest-index", daemon=True).start()
