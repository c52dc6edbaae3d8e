"""A reader of BV graphs without references and intervals, bit by bit, as their specification says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


class Bits:
    """Bits of a file, read from its start."""

    def __init__(self, data: bytes) -> None:
        self.bits = "".join(f"{byte:08b}" for byte in data)
        self.at = 0

    def binary(self, count: int) -> int:
        """A number of so many bits."""
        self.at += count
        return int(self.bits[self.at - count : self.at] or "0", 2)

    def unary(self) -> int:
        """How many zeros come before the next one."""
        count = self.bits.index("1", self.at) - self.at
        self.at += count + 1
        return count

    def gamma(self) -> int:
        """A number in gamma code."""
        bits = self.unary()
        return (1 << bits | self.binary(bits)) - 1

    def zeta(self, k: int) -> int:
        """A number in zeta code."""
        left = 1 << self.unary() * k
        bits = (left << k).bit_length() - 2
        rest = self.binary(bits)
        return rest + left - 1 if rest < left else (rest << 1 | self.binary(1)) - 1


def properties(stem: Path) -> dict[str, str]:
    """The properties of a graph."""
    lines = stem.with_name(f"{stem.name}.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def read_bv(stem: Path) -> list[list[int]]:
    """The successors of each node; offsets and properties are compared with what was read."""
    said = properties(stem)
    nodes, k = int(said["nodes"]), int(said["zetak"])
    graph, offsets = (
        Bits(stem.with_name(f"{stem.name}.{suffix}").read_bytes())
        for suffix in ("graph", "offsets")
    )
    place, found = 0, []
    for node in range(nodes):
        place += offsets.gamma()
        assert graph.at == place
        found.append(list(_successors(graph, node, k)))
    assert graph.at == place + offsets.gamma() == int(said["length"])
    assert sum(map(len, found)) == int(said["arcs"])
    return found


def _successors(graph: Bits, node: int, k: int) -> Iterator[int]:
    last = None
    for _ in range(graph.gamma()):
        number = graph.zeta(k)
        if last is None:
            last = node + (number >> 1 if number % 2 == 0 else -(number + 1 >> 1))
        else:
            last += number + 1
        yield last
