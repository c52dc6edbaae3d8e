"""
### Krake: scores

The tasks of `scores.tasks` in Krake's config, alone. With `scores.when: segments` a run begins after the commit of an
iteration (the asset of segments). With `run` these tasks are the end of each run of the crawl, and this DAG is for runs
by hand. If `outputs.when` is `segments` too, the DAG of outputs begins with these tasks, and this DAG is for runs by
hand.

* **invert_links** takes new segments into the LinkDb: links to a page, and their anchor texts.
* **duplicates** gives all but the best of equal pages the status `duplicate` in the CrawlDb.
* **score** ranks the pages of the newest export with arcs, unless ranked before, and makes their ranks the scores of a
  new version of the CrawlDb. If the newest version has these scores, the task changes nothing. The task is skipped
  before the first export.

#### When it failed
Every task may be run again at any time. Correct the cause named by the log's last line, then *Clear* the failed task
with its downstream. If no page of the export links to another page, no page can be ranked: crawl first, or take the
task out of `scores.tasks`.
"""

from __future__ import annotations

from airflow.sdk import DAG
from krake_airflow.configs import SCORES, scores_come_first
from krake_airflow.operators import asset_of
from krake_airflow.parsing import BATCH_TIMEOUT, configs_to_parse, default_args
from krake_airflow.scores import add_scores

from crawl_lib.config import Config


def scores_dag(config: Config) -> None:
    """Make the DAG of a config."""
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
