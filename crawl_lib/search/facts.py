"""Facts next to an index, in memory: 50 bytes a page, found by the first 8 bytes of its key."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crawl_lib.keys import KEY_BYTES

COLUMNS = ("key", "boost", "host", "near", "unavailable_after")
"""Of `pages.parquet`."""
_NEVER_US = np.iinfo(np.int64).max


@dataclass(frozen=True)
class PageFact:
    """Facts of a page outside its document.

    `key`: 20 bytes. `near`: a number shared by near duplicates alone, None without near duplicates.
    `unavailable_after_us`: POSIX microseconds after which the page is not shown.
    """

    key: bytes
    boost: float = 1.0
    host: str = ""
    near: int | None = None
    unavailable_after_us: int = int(_NEVER_US)


class PageFacts:
    """The facts of all pages of an index."""

    def __init__(self, table: pa.Table) -> None:
        """Take rows with `COLUMNS`, in key order.

        `near` may be of any type; boosts are about 1 in the mean.
        """
        keys: Any = table.column("key").cast(pa.binary(KEY_BYTES))
        self._keys = b"".join(map(_bytes_of, keys.chunks))
        self._orders: NDArray[Any] = np.ndarray(
            (len(keys),), ">u8", self._keys, strides=(KEY_BYTES,)
        ).astype("u8")
        self._boosts = table.column("boost").to_numpy().astype("f4")
        self._hosts, self._host_names = _encoded(table.column("host"))
        self._near, _ = _encoded(table.column("near"))
        times: Any = (
            table.column("unavailable_after").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        )
        self._until = times.fill_null(int(_NEVER_US)).to_numpy()

    def of(self, orders: Sequence[int]) -> Iterator[PageFact]:
        """Yield the facts of pages by `order_of` their keys.

        A page without a row has a key of these 8 bytes alone.
        """
        places = np.searchsorted(self._orders, np.array(orders, "u8"))
        for order, place in zip(orders, places.tolist(), strict=True):
            is_there = place < len(self._orders) and int(self._orders[place]) == order
            yield self._fact(place) if is_there else PageFact(order.to_bytes(8, "big"))

    def _fact(self, place: int) -> PageFact:
        near = int(self._near[place])
        return PageFact(
            self._keys[place * KEY_BYTES : (place + 1) * KEY_BYTES],
            float(self._boosts[place]),
            self._host_names[int(self._hosts[place])],
            near if near >= 0 else None,
            int(self._until[place]),
        )


def _bytes_of(keys: Any) -> memoryview:
    """Return an array's keys as bytes, without copies of each key."""
    start = keys.offset * KEY_BYTES
    return memoryview(keys.buffers()[1])[start : start + len(keys) * KEY_BYTES]


def _encoded(column: "pa.ChunkedArray[Any]") -> tuple[NDArray[Any], list[str]]:
    """Return a number for each value, and the different values.

    -1 means null.
    """
    encoded: Any = column.combine_chunks().dictionary_encode()
    indices = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype("i4")
    return indices, encoded.dictionary.to_pylist()
