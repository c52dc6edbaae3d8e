"""The files of a crawl directory that keep scopes."""

from __future__ import annotations

from pathlib import Path

from crawl_lib.sealed import unsealed


def scope_of(folder: Path) -> Path:
    """The file that keeps the scope of an iteration."""
    return (
        folder.parent / "scope" / unsealed((folder / "iteration.json").read_bytes())["scope_sha256"]
    )


def shared_scopes(crawl: Path) -> list[Path]:
    """The files of a crawl directory that keep scopes by their digests."""
    return sorted(path for path in crawl.glob("scope/*") if len(path.name) == 64)
