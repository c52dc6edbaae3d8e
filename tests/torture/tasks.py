"""The tasks of a run, as the DAGs have them: each is one call of `crawl_lib.stages`.

Commands that no DAG has are a call of what they call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.duplicates import find_near
from crawl_lib.ranks import update_linkrank
from crawl_lib.stores import Stores, open_stores
from crawl_lib.terms import update_terms

OF_LINKS = ("invert_links", "link_rank", "rank")
"""What follows from links, with `frontier.order: fifo` too."""
OF_SCORES = (
    *OF_LINKS,
    "score",
    "near",
    "duplicates",
    "text",
    "index",
    "commoncrawl",
    "graphs",
    "captures",
    "terms",
)
KINDS = (
    *("inject", "generate", "crawl", "commit", "update", "settle"),
    *("maintain_keys", "export", "linker", "finalizer"),
    *OF_SCORES,
)


@dataclass(frozen=True)
class Task:
    """One task of a run. `seeds`: of the run."""

    kind: str
    run: str
    seeds: str = ""
    iteration: int = 0
    node: str = ""

    def __str__(self) -> str:
        return " ".join(
            str(word) for word in (self.run, self.kind, self.iteration or "", self.node) if word
        )

    def call(self, config: Config) -> dict[str, Any]:
        """Do it, with the code that Airflow's operators, or the command line, call."""
        run, iteration, node, now = self.run, self.iteration, self.node, datetime.now(UTC)
        calls: dict[str, Callable[[Stores], dict[str, Any]]] = {
            "inject": lambda stores: stages.inject(stores, run_id=run, seeds=self.seeds),
            "generate": lambda stores: stages.generate(stores, run_id=run, iteration=iteration),
            "crawl": lambda stores: stages.crawl_node(
                stores, run_id=run, iteration=iteration, node=node
            ),
            "commit": lambda stores: stages.commit_iteration(
                stores, run_id=run, iteration=iteration
            ),
            "update": stages.update_crawldb,
            "settle": lambda stores: stages.settle_node(stores, node=node),
            "maintain_keys": stages.maintain_keys,
            "export": lambda stores: stages.export_pages(stores, label="out"),
            "linker": lambda stores: stages.link_export(stores, export="out"),
            "finalizer": lambda stores: stages.finalize_export(stores, export="out"),
            "invert_links": stages.invert_links,
            "link_rank": lambda stores: asdict(update_linkrank(stores, now=now)),
            "rank": lambda stores: stages.rank_export(stores, export="out"),
            "score": lambda stores: stages.update_score(stores, export="out"),
            "near": lambda stores: asdict(find_near(stores, now=now)),
            "duplicates": stages.mark_duplicates,
            "text": lambda stores: stages.make_output(stores, output="text"),
            "captures": lambda stores: stages.make_output(stores, output="captures"),
            "index": lambda stores: stages.make_output(stores, output="index"),
            "terms": lambda stores: update_terms(stores, now=now).manifest,
            "commoncrawl": lambda stores: stages.make_output(stores, output="commoncrawl"),
            "graphs": lambda stores: stages.make_output(stores, output="graphs"),
        }
        return calls[self.kind](open_stores(config))
