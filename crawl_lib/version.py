"""The version of Krake, as WARC records, manifests and the User-Agent header have it; a digest of its code.

In a checkout the queries are in `sql/` next to the package, in an installed wheel in the package. The mapping for
OpenSearch is in `config/` of a checkout, and next to the queries in a wheel.
"""

import os
from functools import cache
from hashlib import sha256
from pathlib import Path

VERSION = "0.1.0"

_PACKAGE = Path(__file__).resolve().parent
_SOURCES = (".py", ".sql", ".c", ".h")


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
    digest = sha256()
    # Each process of a crawl reads these 700 files, in 17 ms. By `Path` it would be 50. A wheel's queries lie in the
    # package: the second root says their place.
    places = {
        f"{folder}/{name}": f"{folder.removeprefix(f'{root.parent}/')}/{name}"
        for root in (package, sql_directory(package))
        for folder, _, names in os.walk(root)
        for name in names
        if name.endswith(_SOURCES)
    }
    for path, place in sorted(places.items(), key=lambda one: one[1]):
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            content = file.readall()
        digest.update(f"{place} {len(content)}\n".encode() + content)
    return digest.hexdigest()
