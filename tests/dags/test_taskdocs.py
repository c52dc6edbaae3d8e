"""What a task's page in Airflow says: one source for Airflow and for the docs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from krake_airflow import operators
from krake_airflow.metrics import METRICS
from krake_airflow.page import KrakePage
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
def test_each_task_has_a_doc_and_a_link(
    kind: type[operators.KrakeOperator], options: dict[str, Any]
) -> None:
    task = kind(task_id="one", **options)
    assert task.doc_md == TASK_DOCS[kind.stage_name].doc_md
    assert kind(task_id="two", doc_md="mine", **options).doc_md == "mine"
    assert [link.name for link in task.operator_extra_links] == ["Krake"]


@pytest.mark.parametrize("base", ["http://localhost:8080/", "https://example.org/airflow"])
def test_the_link_leads_to_the_tab_below_the_address_of_airflow(
    monkeypatch: pytest.MonkeyPatch, base: str
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base)
    key = SimpleNamespace(
        dag_id="a_crawl", run_id="manual__2026-01-01T00:00:00+00:00", task_id="iteration_1.crawl.n"
    )
    path = operators.KrakeLink().get_link(cast("Any", None), ti_key=key)
    run = "manual__2026-01-01T00%3A00%3A00%2B00%3A00"
    below = "/airflow" if base.endswith("airflow") else ""
    assert path == f"{below}/dags/a_crawl/runs/{run}/tasks/iteration_1.crawl.n/plugin/krake-task"
    assert any(view["url_route"] == path.rpartition("/")[2] for view in KrakePage.external_views)


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
