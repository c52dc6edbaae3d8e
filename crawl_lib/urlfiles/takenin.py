"""Record which sources of URLs a node has taken in."""

from collections.abc import Collection, Iterable

_DIGEST_CHARS = 40
"""The length of the name of injected seeds."""


class TakenIn:
    """The (folder, node) pairs that have been taken in. A folder whose segments are all taken in is one name."""

    def __init__(
        self, complete: Iterable[str] = (), partial: dict[str, list[str]] | None = None
    ) -> None:
        self.complete: set[str] = set(complete)
        self.partial: dict[str, set[str]] = {
            folder: set(nodes) for folder, nodes in (partial or {}).items()
        }

    def __bool__(self) -> bool:
        """Return whether anything has been taken in."""
        return bool(self.complete or self.partial)

    def __contains__(self, source: object) -> bool:
        """Return whether the pair (folder, node) has been taken in."""
        if not isinstance(source, tuple):
            return False
        folder, node = source
        return folder in self.complete or node in self.partial.get(folder, ())

    def __le__(self, other: "TakenIn") -> bool:
        """Return whether the other record has all pairs of this one."""
        pairs = ((folder, node) for folder, nodes in self.partial.items() for node in nodes)
        return self.complete <= other.complete and all(pair in other for pair in pairs)

    def folders(self) -> list[str]:
        """Return the folders of iterations.

        Names of seeds and lists are longer, or no numbers.
        """
        return [
            name
            for name in (*self.complete, *self.partial)
            if name.isdecimal() and len(name) < _DIGEST_CHARS
        ]

    def with_sources(
        self, sources: Iterable[tuple[str, str]], complete: Collection[str] = ()
    ) -> "TakenIn":
        """Return a new record with these pairs added.

        `complete`: folders of which nothing else will ever be taken in.
        """
        more = TakenIn(
            self.complete, {folder: list(nodes) for folder, nodes in self.partial.items()}
        )
        for folder, node in sources:
            if folder not in more.complete:
                more.partial.setdefault(folder, set()).add(node)
        for folder in complete:
            if more.partial.pop(folder, None) is not None:
                more.complete.add(folder)
        return more

    def without_lists(self, but: Collection[str] = ()) -> "TakenIn":
        """Return the record without complete lists.

        Only names of lists have a dash. `but`: lists that still exist.
        """
        kept = (folder for folder in self.complete if "-" not in folder or folder in but)
        return TakenIn(kept, self._partial_lists())

    def __or__(self, other: "TakenIn") -> "TakenIn":
        """Return the union of both."""
        pairs = ((folder, node) for folder, nodes in other.partial.items() for node in nodes)
        return TakenIn(self.complete | other.complete, self._partial_lists()).with_sources(pairs)

    def to_mapping(self) -> dict[str, list[str] | dict[str, list[str]]]:
        """Return the mapping in `state.krake`."""
        return {"complete": sorted(self.complete), "partial": self._partial_lists()}

    def _partial_lists(self) -> dict[str, list[str]]:
        return {folder: sorted(nodes) for folder, nodes in sorted(self.partial.items())}
