"""The file `scope` of injected seeds and of an iteration: hosts, sorted, a line each.

Whatever it lacks is out of the crawl for good, since each iteration takes its scope from the one before. So the small
file next to it (`manifest.json`, `iteration.json`) holds its SHA-256, and each reader compares.
"""

from hashlib import sha256

from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.storage import Storage

SCOPE_FILE = "scope"
SCOPE_DIGEST = "scope_sha256"


def scope_digest(data: bytes) -> str:
    """What the small file next to it says of it."""
    return sha256(data).hexdigest()


def read_scope(storage: Storage, folder: str, digest: object) -> set[str]:
    """The hosts of `<folder>/scope`. `digest`: what the small file next to it says.

    Raises DamagedFileError if it is missing or not what was written, naming the command that makes it again.
    """
    where = f"{folder}/{SCOPE_FILE}"
    try:
        data = storage.read_bytes(where)
        if scope_digest(data) == digest:
            return set(data.decode("ascii").splitlines())
        problem = "is not what was written (SHA-256)"
    except PathNotFoundError:
        problem = "is not there"
    except UnicodeDecodeError as error:
        problem = f"is no text: {error}"
    raise DamagedFileError(f"{where}: {problem}; run `krake fsck --repair`")
