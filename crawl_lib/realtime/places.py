"""The places of real-time files in a node's directory, and the names of fetchers."""

from pathlib import Path

from crawl_lib.config import Config
from crawl_lib.frontier import NodeDirectory

RUN_FILE = "run.json"
"""The note of an unfinished collection, in the folder `collect` of a fetcher."""
FETCHER = "live-0"
"""The name of the one fetcher of a node, and of the segments that it brings."""


def fetcher_names(config: Config) -> list[str]:
    """Name the fetchers of a service.

    They are the fetchers on other machines, or else the service's own.
    """
    fetchers = config.realtime.fetchers if config.realtime else ()
    return [fetcher.name for fetcher in fetchers] or [FETCHER]


def live_spool(node_dir: Path, name: str) -> Path:
    """Return where a fetcher's parts lie until they are collected."""
    return NodeDirectory(node_dir).live / name / "spool"


def live_submissions(node_dir: Path, name: str) -> Path:
    """Return the folder of submissions that wait for collection.

    They are collected with the parts of a fetcher.
    """
    return NodeDirectory(node_dir).live / name / "submissions"
