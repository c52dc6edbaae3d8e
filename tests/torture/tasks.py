"""The tasks of a run, as the DAG has them: each is one call of `crawl_lib.stages`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.stores import open_stores

KINDS = (
    *("inject", "generate", "crawl", "commit", "update", "settle"),
    *("maintain_keys", "export", "linker", "finalizer"),
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
        return " ".join(str(word) for word in (self.run, self.kind, self.iteration or "", self.node) if word)

    def call(self, config: Config) -> dict[str, Any]:
        """Do it, with the code that Airflow's operators call."""
        run, iteration, node = self.run, self.iteration, self.node
        match self.kind:
            case "inject":
                return stages.inject(open_stores(config), run_id=run, seeds=self.seeds)
            case "crawl":
                return stages.crawl_node(open_stores(config), run_id=run, iteration=iteration, node=node)
            case "generate":
                return stages.generate(open_stores(config), run_id=run, iteration=iteration)
            case "update":
                return stages.update_crawldb(open_stores(config))
            case "commit":
                return stages.commit_iteration(open_stores(config), run_id=run, iteration=iteration)
            case "settle":
                return stages.settle_node(open_stores(config), node=node)
            case "maintain_keys":
                return stages.maintain_keys(open_stores(config))
            case "export":
                return stages.export_pages(open_stores(config), label="out")
            case "linker":
                return stages.link_export(open_stores(config), export="out")
            case _:
                return stages.finalize_export(open_stores(config), export="out")
