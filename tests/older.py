"""Crawl directories as older versions of Krake left them."""

from __future__ import annotations

import shutil
from pathlib import Path

from crawl_lib.sealed import sealed_json, unsealed


def as_older(crawl: Path) -> None:
    """Give each iteration's folder of a crawl directory a scope and a note of what was agreed, as files of its own."""
    for folder in crawl.glob("[0-9]*"):
        path = folder / "iteration.json"
        value = unsealed(path.read_bytes())
        agreed, whose = value.pop("agreed"), {name: value[name] for name in ("run_id", "iteration")}
        (folder / "agreed-1.json").write_bytes(sealed_json({**agreed, **whose}))
        path.write_bytes(sealed_json(value))
        shutil.copy(scope_of(folder), folder / "scope")
    for path in shared_scopes(crawl):
        path.unlink()


def scope_of(folder: Path) -> Path:
    """The file that keeps the scope of an iteration."""
    return (
        folder.parent / "scope" / unsealed((folder / "iteration.json").read_bytes())["scope_sha256"]
    )


def shared_scopes(crawl: Path) -> list[Path]:
    """The files of a crawl directory that keep scopes by their digests."""
    return sorted(path for path in crawl.glob("scope/*") if len(path.name) == 64)
