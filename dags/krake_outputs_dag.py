"""
### Krake: outputs

The tasks of `outputs.tasks` in Krake's config, alone. With `outputs.when: segments` a run begins after the commit of an
iteration (the asset of segments). With `run` these tasks are the end of each run of the crawl, and this DAG is for runs
by hand. If `scores.when` is `segments` too, the tasks of `scores.tasks` are the beginning of this DAG.

* **text** reads each page's main text, language and words.
* **captures** notes where the newest capture of each URL is, so that look-ups of a URL are fast.
* **index** makes a version of the index with the current pages, for `krake search`.
* **push** brings OpenSearch (`push.url`) to the newest version of the index.
* **commoncrawl** makes Common Crawl's index and WET files, as `commoncrawl.make` of the config says.
* **graphs** makes files of hosts, domains and links of the newest export, for other programs.

#### When it failed
Every task may be run again at any time: the task goes on where the last try stopped, or finds its work done. Correct
the cause named by the log's last line, then *Clear* the failed task with its downstream.
"""

from __future__ import annotations

from airflow.sdk import DAG
from krake_airflow.configs import OUTPUTS, scores_come_first
from krake_airflow.operators import asset_of
from krake_airflow.outputs import add_outputs
from krake_airflow.parsing import BATCH_TIMEOUT, configs_to_parse, default_args
from krake_airflow.scores import add_scores

from crawl_lib.config import Config


def outputs_dag(config: Config) -> None:
    """Make the DAG of a config."""
    with DAG(
        dag_id=f"{config.crawl.name}_{OUTPUTS}",
        description="Texts of crawled pages, with index and other outputs",
        doc_md=__doc__,
        schedule=[asset_of(config.crawl.name, "segments")]
        if config.outputs.when == "segments"
        else None,
        catchup=False,
        max_active_runs=1,
        default_args={**default_args(config), "execution_timeout": BATCH_TIMEOUT},
        tags=["krake"],
    ):
        add_outputs(config, add_scores(config) if scores_come_first(config) else None)


for one in configs_to_parse(OUTPUTS):
    outputs_dag(one)
