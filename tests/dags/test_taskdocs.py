"""What a task's page in Airflow says: one source for Airflow and for the docs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from krake_airflow import operators
from krake_airflow.metrics import METRICS
from krake_airflow.taskdocs import TASK_DOCS, TaskDoc, doc_of, table

from tests.dags.test_operators import LATER

OPERATING = Path(__file__).parents[2] / "docs" / "operating.md"


def test_every_stage_has_its_text_and_no_other() -> None:
    assert set(TASK_DOCS) == set(METRICS)


def test_the_table_of_the_docs_has_the_same_sentences() -> None:
    text = OPERATING.read_text()
    begin, end = text.index("<!-- tasks:begin"), text.index("<!-- tasks:end -->")
    assert text[begin:end].partition("-->\n")[2].strip() == table()


@pytest.mark.parametrize("doc", TASK_DOCS.values(), ids=TASK_DOCS)
def test_a_text_is_short_since_each_task_of_each_node_has_a_copy(doc: TaskDoc) -> None:
    assert doc.does.endswith(".")
    assert doc.failed.endswith(".")
    assert len(doc.doc_md) < 400


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (operators.InjectOperator, {"later": LATER}),
        (operators.CrawlOperator, {"iteration": 1, "node": "node-a"}),
        (operators.ExportOperator, {"of_run": True}),
    ],
)
def test_each_task_shows_it(kind: type[operators.KrakeOperator], options: dict[str, Any]) -> None:
    task = kind(task_id="one", **options)
    assert task.doc_md == TASK_DOCS[kind.stage_name].doc_md
    assert kind(task_id="two", doc_md="mine", **options).doc_md == "mine"


@pytest.mark.parametrize(
    ("task_id", "stage"),
    [
        ("inject", "inject"),
        ("iteration_2.crawl.node.example", "crawl"),
        ("iteration_2.crawl.settle", "crawl"),
        ("iteration_2.commit", "commit"),
        ("iteration_2.generate", "generate"),
        ("iteration_2.update", "update_crawldb"),
        ("settle.node.example", "settle"),
        ("maintain_keys.a.example", "maintain_keys"),
        ("committed", None),
    ],
)
def test_the_text_is_found_by_the_id_of_a_task(task_id: str, stage: str | None) -> None:
    """Ids have the groups of a DAG, and nodes may have dots in their names."""
    assert doc_of(task_id) == (TASK_DOCS[stage] if stage else None)
