"""The version of Krake, as WARC records, manifests and the User-Agent header have it, and a digest of its code."""

from functools import cache
from hashlib import sha256
from pathlib import Path

VERSION = "0.1.0"

_PACKAGE = Path(__file__).resolve().parent


@cache
def code_digest(package: Path = _PACKAGE) -> str:
    """SHA-256 of the sources of `crawl_lib` and of `sql/` next to it, in hex: tells checkouts of one version apart."""
    digest = sha256()
    for root in (package, package.parent / "sql"):
        for path in sorted(path for path in root.rglob("*") if path.suffix in {".py", ".sql", ".c", ".h"}):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(package.parent).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()
