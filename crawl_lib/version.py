"""The version of Krake, as WARC records, manifests and the User-Agent header have it; a digest of its code.

In a checkout the queries are in `sql/` next to the package, in an installed wheel in the package. The mapping for
OpenSearch is in `config/` of a checkout, and next to the queries in a wheel.
"""

from functools import cache
from hashlib import sha256
from pathlib import Path

VERSION = "0.1.0"

_PACKAGE = Path(__file__).resolve().parent


def in_checkout(package: Path = _PACKAGE) -> bool:
    """Say whether this is a checkout, with `make`.

    An installed wheel has no Makefile.
    """
    return (package.parent / "Makefile").is_file()


def sql_directory(package: Path = _PACKAGE) -> Path:
    """Return the folder of the queries."""
    inside = package / "sql"
    return inside if inside.is_dir() else package.parent / "sql"


def mapping_file(package: Path = _PACKAGE) -> Path:
    """Return the file with Krake's mapping for OpenSearch."""
    inside = package / "opensearch-mapping.json"
    return inside if inside.is_file() else package.parent / "config" / "opensearch-mapping.json"


@cache
def code_digest(package: Path = _PACKAGE) -> str:
    """Return a digest of the sources of `crawl_lib` and `sql/`.

    SHA-256 in hex: checkouts and wheels of one version may differ in their digests.
    """
    digest, sql = sha256(), sql_directory(package)
    for root in (package, sql):
        for path in sorted(
            path for path in root.rglob("*") if path.suffix in {".py", ".sql", ".c", ".h"}
        ):
            if root == sql or sql not in path.parents:
                content = path.read_bytes()
                digest.update(
                    f"{path.relative_to(root.parent).as_posix()} {len(content)}\n".encode()
                    + content
                )
    return digest.hexdigest()
