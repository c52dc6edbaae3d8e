"""Keys as numpy arrays, in ascending order."""

import numpy as np
import numpy.typing as npt

from crawl_lib.keys import KEY_BYTES

Keys = npt.NDArray[np.bytes_]


def key_array(keys: bytes | bytearray) -> Keys:
    """Sort concatenated keys, each once."""
    return np.unique(np.frombuffer(bytes(keys), f"S{KEY_BYTES}"))


def key_list(keys: Keys) -> list[bytes]:
    """Return the keys in the same order, with the zeros at their ends."""
    found: list[bytes] = keys.view(f"V{KEY_BYTES}").tolist()
    return found


def key_bytes(key: np.bytes_) -> bytes:
    """Restore the zeros that numpy cuts off a key's end."""
    return bytes(key).ljust(KEY_BYTES, b"\0")


def is_among(some: Keys, keys: Keys) -> npt.NDArray[np.bool_]:
    """Return which of some keys are among ascending `keys`."""
    if not len(keys):
        return np.zeros(len(some), np.bool_)
    found: npt.NDArray[np.bool_] = (
        keys[np.minimum(np.searchsorted(keys, some), len(keys) - 1)] == some
    )
    return found
