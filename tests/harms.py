"""Ways to harm a file, at places that follow from a seed or are given, and the files of a folder as a value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

Harm = Callable[[Path, Random], object]
"""Harms one file."""


def gone(path: Path, rng: Random) -> None:
    """Delete the file."""
    path.unlink()


def renamed(path: Path, rng: Random) -> None:
    """Give the file a name that no file of Krake has."""
    path.rename(path.with_name(f"{path.name}.{rng.randrange(100)}"))


def appended(path: Path, rng: Random) -> None:
    """Put bytes behind the end."""
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randint(1, 40)))


def nonsense(path: Path, rng: Random) -> None:
    """Put something else in place of the content."""
    path.write_bytes(rng.choice((b"{", b"no line\n", b"\xff\xfe//\n")) * rng.randint(1, 100))


def empty(path: Path, rng: Random) -> None:
    """Take the content away."""
    path.write_bytes(b"")


def cut(path: Path, rng: Random) -> None:
    """Cut off the last bytes, less than a line."""
    path.write_bytes(path.read_bytes()[: -rng.randint(2, 5)])


def character(path: Path, rng: Random) -> None:
    """Put a digit in place of a digit, or a letter in place of a letter: the file has the same form."""
    data = path.read_bytes()
    found = rng.choice(list(re.finditer(rb"[1-9]|[a-z]", data)))
    kind = b"123456789" if found[0].isdigit() else b"abcdefghijklmnopqrstuvwxyz"
    another = bytes([rng.choice(kind.replace(found[0], b""))])
    path.write_bytes(data[: found.start()] + another + data[found.end() :])


def byte(path: Path, rng: Random) -> None:
    """Put another byte in place of one."""
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= rng.randint(1, 255)
    path.write_bytes(data)


def _bits(data: bytearray, rng: Random) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _cut(data: bytearray, rng: Random) -> None:
    del data[rng.choice((rng.randrange(len(data)), max(0, len(data) - rng.randint(1, 20)))) :]


def _empty(data: bytearray, rng: Random) -> None:
    del data[:]


def _zero(data: bytearray, rng: Random) -> None:
    at = rng.randrange(len(data))
    size = min(len(data) - at, rng.choice((8, 512, 4096)))
    data[at : at + size] = bytes(size)


def _swap(data: bytearray, rng: Random) -> None:
    """Two parts change places: lines, if there are any."""
    a, b, c, d = _places(data, rng, 4)
    data[:] = data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def _double(data: bytearray, rng: Random) -> None:
    a, b = _places(data, rng, 2)
    data[b:b] = data[a:b]


def _places(data: bytearray, rng: Random, count: int) -> list[int]:
    ends = [0, *(match.end() for match in re.finditer(rb"\n", data)), len(data)]
    if len(ends) > count and rng.random() < 0.6:
        return sorted(rng.sample(ends, count))
    return sorted(rng.randint(0, len(data)) for _ in range(count))


WAYS = {
    "bits": (_bits, 10),
    "cut": (_cut, 3),
    "empty": (_empty, 1),
    "zero": (_zero, 1),
    "swap": (_swap, 2),
    "double": (_double, 2),
}
"""Changes of a file's bytes, and how often each is made."""


def changed(path: Path, rng: Random) -> str:
    """Change a file's bytes in one of `WAYS`; returns how."""
    before = path.read_bytes()
    if not before:
        path.write_bytes(rng.randbytes(rng.randint(1, 40)))
        return "bytes in an empty file"
    while True:
        [way] = rng.choices(list(WAYS), [weight for _, weight in WAYS.values()])
        data = bytearray(before)
        WAYS[way][0](data, rng)
        if data != before:
            path.write_bytes(data)
            at = next(
                (at for at, (old, new) in enumerate(zip(before, data, strict=False)) if old != new),
                len(data),
            )
            return f"{way} at {at} of {len(before)}"


def harmed(path: Path, rng: Random) -> str:
    """Change, replace, rename or delete a file; returns how."""
    harm: Harm = rng.choice((changed, changed, changed, nonsense, appended, renamed, gone))
    return str(harm(path, rng) or harm.__name__)


def flipped(data: bytes, bit: int) -> bytes:
    """Return bytes with one bit changed, counted from the begin."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def all_flipped(data: bytes) -> Iterator[bytes]:
    """Yield bytes with each bit changed alone."""
    return (flipped(data, bit) for bit in range(8 * len(data)))


def flip_bit(path: Path, rng: Random) -> None:
    """Change one bit of a file."""
    data = path.read_bytes()
    path.write_bytes(flipped(data, 8 * rng.randrange(len(data)) + rng.randrange(8)))


def flip(path: Path, share: float = 0.5) -> None:
    """Change a bit after this share of a file."""
    data = path.read_bytes()
    path.write_bytes(flipped(data, 8 * int(len(data) * share) + 4))


def shorten(path: Path, share: float = 0.6) -> None:
    """Leave this share of a file."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


def zero(path: Path, share: float = 0.4, size: int = 4096) -> None:
    """Put zeros in place of bytes after this share of a file."""
    data = bytearray(path.read_bytes())
    at = int(len(data) * share)
    size = min(size, len(data) - at)
    data[at : at + size] = bytes(size)
    path.write_bytes(bytes(data))


def garbage(path: Path) -> None:
    """Put bytes of no format in place of the content."""
    path.write_bytes(b"\x00garbage\xff" * 20)


def files_of(folder: Path) -> dict[str, bytes]:
    """Read every file below a folder, hidden ones too."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class Kept:
    """The files of a folder as they are, to be put back after each harm."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = {path: path.read_bytes() for path in folder.iterdir()}

    def put_back(self) -> None:
        """Make the folder what it was."""
        for path in set(self._folder.iterdir()) - self._files.keys():
            path.unlink()
        for path, data in self._files.items():
            path.write_bytes(data)
