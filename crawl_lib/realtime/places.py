"""Where the files of real time lie in a node's directory, and how a fetcher is named."""

from pathlib import Path

from crawl_lib.frontier import NodeDirectory

FETCHER = "live-0"
"""The name of the one fetcher of a node, and of the segments that it brings."""


def live_spool(node_dir: Path, name: str) -> Path:
    """Return where a fetcher's parts lie until they are collected."""
    return NodeDirectory(node_dir).live / name / "spool"


def live_submissions(node_dir: Path, name: str) -> Path:
    """Return where submissions lie until they are collected with the parts of a fetcher."""
    return NodeDirectory(node_dir).live / name / "submissions"
