"""
### Krake: scores

What `scores.tasks` of Krake's config names, alone. With `scores.when: segments` a run begins when an iteration was
committed (the asset of segments); with `run` these tasks are the end of each run of the crawl, and this DAG is for
runs by hand. Where `outputs.when` is `segments` too, the DAG of outputs begins with these tasks, and this one is for
runs by hand.

* **invert_links** takes new segments into the LinkDb: links to a page, and their anchor texts.
* **duplicates** gives all but the best of equal pages the status `duplicate` in the CrawlDb.
* **score** ranks the pages of the newest export that has arcs, where they are not ranked yet, and makes their ranks the
  scores of the CrawlDb, as a new version of it. Where the newest version has these scores, nothing is left to be done.
  It is skipped before the first export.

#### When it failed
Every task may be run again at any time. Correct what the log's last line names, then *Clear* the failed task with its
downstream. Where no page of the export links to another there is nothing to rank: crawl first, or take the task out of
`scores.tasks`.
"""

from __future__ import annotations

from airflow.sdk import DAG
from krake_airflow.configs import SCORES, scores_come_first
from krake_airflow.operators import asset_of
from krake_airflow.parsing import BATCH_TIMEOUT, configs_to_parse, default_args
from krake_airflow.scores import add_scores

from crawl_lib.config import Config


def scores_dag(config: Config) -> None:
    """The DAG of a config."""
    begins_by_segments = config.scores.when == "segments" and not scores_come_first(config)
    with DAG(
        dag_id=f"{config.crawl.name}_{SCORES}",
        description="Ranks and scores of crawled pages",
        doc_md=__doc__,
        schedule=[asset_of(config.crawl.name, "segments")] if begins_by_segments else None,
        catchup=False,
        max_active_runs=1,
        default_args={**default_args(config), "execution_timeout": BATCH_TIMEOUT},
        tags=["krake"],
    ):
        add_scores(config)


for one in configs_to_parse(SCORES):
    scores_dag(one)
