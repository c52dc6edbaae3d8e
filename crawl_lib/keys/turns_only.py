"""The key store of a crawl whose CrawlDb says what is known: its servers keep turns and their places, and no keys."""

from collections.abc import Collection

from crawl_lib.keys.server import Claim, KnownKeys
from crawl_lib.keys.sharded import ShardedKeyStore
from crawl_lib.states import KeyState


class TurnsOnly(ShardedKeyStore):
    """Every key is new, and ours; nothing is written, and no server is asked."""

    def unknown(self, keys: Collection[bytes]) -> KnownKeys:
        return KnownKeys(new=set(keys))

    def claim(self, keys: Collection[bytes]) -> Claim:
        return Claim(ours=set(keys))

    def insert(self, keys: Collection[bytes], state: KeyState = KeyState.QUEUED) -> dict[str, int]:
        return {}

    def set_state(self, keys: Collection[bytes], state: KeyState) -> dict[str, int]:
        return {}

    def states(self, keys: Collection[bytes]) -> dict[bytes, KeyState | None]:
        return dict.fromkeys(keys)
