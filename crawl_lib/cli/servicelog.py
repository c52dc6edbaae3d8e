"""The log of a service on stderr: a problem that lasts for hours does not fill the disk."""

import logging
import time

REPEAT_S = 60.0
"""The same text is logged again after this time."""
MOST_TEXTS = 1_000
"""The texts that are remembered."""


class RepeatFilter(logging.Filter):
    """A filter that drops a text which was logged less than `REPEAT_S` ago."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Decide whether to log a record."""
        text, now_s = record.getMessage(), time.monotonic()
        is_repeated = now_s - self._logged_s.get(text, -REPEAT_S) < REPEAT_S
        if not is_repeated:
            self._logged_s.pop(text, None)
            self._logged_s[text] = now_s
            if len(self._logged_s) > MOST_TEXTS:
                del self._logged_s[next(iter(self._logged_s))]
        return not is_repeated


def log_to_stderr() -> None:
    """Log times, levels and texts on stderr, from the level INFO on."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(RepeatFilter())
