"""SIGINT and SIGTERM as an event, for programs (never for the library's own functions, which take the event).

The rule of all programs: the first signal sets the event, and the program ends at its next safe point; where that
takes longer than `LONGEST_STOP_S` it is ended there, as by a kill, which loses nothing. The second signal ends it at
once; so does the first one while modules are loaded. The exit code is 128 and the signal's number, as shells have it:
130 for SIGINT (Ctrl-C), 143 for SIGTERM.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Thread, Timer
from types import FrameType
from typing import Self

LONGEST_STOP_S = 4.0
"""A program that was told to stop ends within 5 s, children included."""
STOPPED_TEXT = "stopped; run it again to go on"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_BY_SIGNAL = 128


class LastResort:
    """Ends this process where a step takes longer than `LONGEST_STOP_S` to see that it is to stop.

    Only while its `with` block runs. A merge of tables, an upload or a statement of a key server looks at nothing while
    it runs. To end there is what a kill does, which loses nothing; fetching processes die with their parent.
    """

    def __init__(self, seconds: float = LONGEST_STOP_S) -> None:
        self._seconds = seconds
        self._timer: Timer | None = None
        self._is_needed = False

    def __enter__(self) -> Self:
        self._is_needed = True
        return self

    def __exit__(self, *error: object) -> None:
        """It has stopped by itself."""
        self._is_needed = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def begin(self, code: int, text: str = STOPPED_TEXT) -> None:
        """End the process unless the `with` block ends in time.

        `code`: the exit code; `text`: for the user.
        """
        if self._is_needed and self._timer is None:
            self._timer = Timer(self._seconds, self._end, (code, text))
            self._timer.daemon = True
            self._timer.start()

    def _end(self, code: int, text: str) -> None:
        if text:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
        os._exit(code)


class StopSignal(Event):
    """Set by SIGINT or SIGTERM. `code`: the exit code of a program that was stopped by it.

    `text`: what the program then tells the user, with the way to go on; empty: nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.code = _BY_SIGNAL + signal.SIGINT
        self.text = STOPPED_TEXT


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


def end_on_signals() -> AbstractContextManager[None]:
    """End the process at once on SIGINT or SIGTERM, silently.

    No work has begun yet. Main thread only. Python alone would print where it was. This module loads nothing but
    Python's own, so that a program has this first.
    """
    return _handled(lambda number, _: os._exit(_BY_SIGNAL + number))


@contextmanager
def stop_on_signals() -> Iterator[StopSignal]:
    """Give an event that SIGINT or SIGTERM sets.

    The second signal ends the process. Main thread only. The process ends in any case, within `LONGEST_STOP_S` of the
    first signal. A thread listens to the signals: Python runs handlers in the main thread, which may be in a query or a
    system call for long.
    """
    stop = StopSignal()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with LastResort() as last_resort:
        listener = Thread(
            target=_listen, args=(reader, stop, last_resort), name="signals", daemon=True
        )
        listener.start()
        written_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            with _handled(
                lambda *_: None
            ):  # there is a handler, so that the signal is written to the pipe
                yield stop
        finally:
            signal.set_wakeup_fd(written_before)
            os.close(writer)
            listener.join()
            os.close(reader)


@contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt at SIGINT; end the process at SIGTERM.

    SIGINT is Ctrl-C, and handled as by Python. An interactive shell runs so, within `stop_on_signals`, whose thread
    gets no signal meanwhile. Main thread only.
    """
    heard = signal.set_wakeup_fd(-1)
    try:
        with end_on_signals():
            signal.signal(signal.SIGINT, signal.default_int_handler)
            yield
    finally:
        signal.set_wakeup_fd(heard, warn_on_full_buffer=False)


def _listen(reader: int, stop: StopSignal, last_resort: LastResort) -> None:
    while numbers := os.read(reader, 1):
        code = _BY_SIGNAL + numbers[0]
        if numbers[0] not in _SIGNALS:
            continue
        if stop.is_set():
            os._exit(code)
        stop.code = code
        stop.set()
        last_resort.begin(code, stop.text)
