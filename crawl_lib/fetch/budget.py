"""How many bytes of bodies may be in flight at once: `fetch.max_inflight_bytes`.

Half of it is divided: up to its share of that a transfer is never held up, so large bodies cannot delay small pages.
Above its share it draws on the other half, which is common; while that is used up it pauses, and goes on when another
one has ended. One may always go on: the first that found no room, up to its own end. A pause does not count as time of
its transfer, but it ends one that lasts twice as long as it may: else hosts that stop talking would hold up the others
one after the other.
"""

from __future__ import annotations

from typing import Protocol


class Holder(Protocol):
    """A transfer. `held`: what it has of the common half, in bytes."""

    held: int

    def resume(self) -> None:
        """Go on after a pause; it may be refused room again at once."""


class InflightBudget:
    """The budget of one transport. `connections`: how many transfers there may be at once."""

    def __init__(self, max_bytes: int, connections: int) -> None:
        self.share = max_bytes // 2 // connections
        self._room = max_bytes // 2
        self._first: Holder | None = None
        self._paused: list[Holder] = []

    def takes(self, holder: Holder, had: int, more: int) -> bool:
        """Whether a transfer that has `had` bytes may take `more`; if not, it is resumed when there may be room."""
        count = max(0, had + more - max(had, self.share))
        if count > max(0, self._room) and self._first is not holder:
            if self._first is not None:
                self._paused.append(holder)
                return False
            self._first = holder
        self._room -= count
        holder.held += count
        return True

    def release(self, holder: Holder) -> None:
        """A transfer has ended, and its body is counted no more."""
        self._room += holder.held
        holder.held = 0
        if self._first is holder:
            self._first = None
        if holder in self._paused:
            self._paused.remove(holder)
        if self._paused and (self._room > 0 or self._first is None):
            waiting, self._paused = self._paused, []
            for one in waiting:
                one.resume()
