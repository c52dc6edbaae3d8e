"""Cells and columns of the tables of the page, and links to Airflow and to the page itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from markupsafe import Markup


class Link(NamedTuple):
    """A cell that leads somewhere. `target`: "_top" leaves the frame of the page."""

    text: str
    href: str
    target: str = ""


class Column(NamedTuple):
    """A column of a table. `kind`: num, path, words, or "" for a short text; `width`: in percent."""

    head: str
    name: str
    width: int
    kind: str = ""


Row = Mapping[str, str | Link | Markup]


@dataclass(frozen=True)
class Links:
    """Links below the address of this Airflow. `root`: the path of the page, such as `/krake`."""

    root: str

    @property
    def home(self) -> str:
        """The list of crawls."""
        return f"{self.root}/"

    def crawl(self, name: str) -> str:
        """Return the path of the page of a crawl."""
        return f"{self.root}/crawl/{quote(name, safe='')}"

    def ask(self, name: str) -> str:
        """Return the path of the look-up of a URL."""
        return f"{self.crawl(name)}/url"

    def url(self, name: str, url: str) -> str:
        """Return the path of the look-up of this URL."""
        return f"{self.ask(name)}?{urlencode({'url': url})}"

    def dag(self, dag_id: str) -> str:
        """Return the path of a DAG in Airflow."""
        return f"{self.root.removesuffix('/krake')}/dags/{quote(dag_id, safe='')}"

    def run(self, dag_id: str, run_id: str) -> str:
        """Return the path of a run in Airflow."""
        return f"{self.dag(dag_id)}/runs/{quote(run_id, safe='')}"

    def task(self, dag_id: str, run_id: str, task_id: str) -> str:
        """Return the path of a task of a run in Airflow."""
        return f"{self.run(dag_id, run_id)}/tasks/{quote(task_id, safe='')}"


def columns(*given: Sequence[Any]) -> list[Column]:
    """Make columns of their fields."""
    return [Column(*one) for one in given]
