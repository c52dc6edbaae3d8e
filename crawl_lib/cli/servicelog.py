"""The log of a service on stderr: a problem that lasts for hours does not fill the disk."""

import logging
import time
from threading import Lock

REPEAT_S = 60.0
"""The same warning is logged again after this time."""
MOST_TEXTS = 1_000
"""The warnings that are remembered."""


class RepeatFilter(logging.Filter):
    """A filter that drops a warning or error which was logged less than `REPEAT_S` ago. Threads may share a filter."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()
        self._logged_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Decide whether to log a record."""
        if record.levelno < logging.WARNING:
            return True
        # The text itself may be malformed, and logging reports that later.
        text, now_s = str((record.msg, record.args)), time.monotonic()
        with self._lock:
            if now_s - self._logged_s.get(text, -REPEAT_S) < REPEAT_S:
                return False
            self._logged_s.pop(text, None)
            self._logged_s[text] = now_s
            if len(self._logged_s) > MOST_TEXTS:
                del self._logged_s[next(iter(self._logged_s))]
        return True


def log_to_stderr() -> None:
    """Log times, levels and texts on stderr, from the level INFO on."""
    handler = logging.StreamHandler()
    handler.addFilter(RepeatFilter())
    form = "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(level=logging.INFO, format=form, handlers=[handler])
