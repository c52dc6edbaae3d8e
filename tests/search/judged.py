"""CISI: 1,460 abstracts and 76 judged queries of the University of Glasgow's collection, where they are at hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import log2
from pathlib import Path

import pytest

from crawl_lib.index import IndexedPage
from tests.search.made import page

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "testdata" / "search"


def _records(name: str) -> dict[int, dict[str, str]]:
    path = FOLDER / f"CISI.{name}"
    if not path.exists():
        pytest.skip(f"{path} is not there: the collection CISI, which is no part of the project")
    records = {}
    for record in re.split(r"^\.I ", path.read_text("latin-1"), flags=re.MULTILINE)[1:]:
        number, _, rest = record.partition("\n")
        parts = re.split(r"^\.([A-Z])\s*$", rest, flags=re.MULTILINE)
        records[int(number)] = {
            name: " ".join(text.split())
            for name, text in zip(parts[1::2], parts[2::2], strict=True)
        }
    return records


def documents() -> list[IndexedPage]:
    """The abstracts as pages whose paths are their numbers."""
    return [
        page(str(number), one.get("W", ""), title=one.get("T", ""))
        for number, one in _records("ALL").items()
    ]


def queries() -> list[tuple[str, set[str]]]:
    """The judged queries, with their titles where they have some, and the numbers of the documents that answer each."""
    judged: dict[int, set[str]] = {}
    texts = _records("QRY")
    for line in (FOLDER / "CISI.REL").read_text("latin-1").splitlines():
        query, document = line.split()[:2]
        judged.setdefault(int(query), set()).add(document)
    return [
        (f"{texts[query].get('T', '')} {texts[query]['W']}", answers)
        for query, answers in judged.items()
    ]


def ndcg(results: Sequence[str], answers: set[str], depth: int = 10) -> float:
    """Normalised discounted cumulative gain, where each answer counts the same."""
    gained = sum(1 / log2(rank + 2) for rank, one in enumerate(results[:depth]) if one in answers)
    return gained / sum(1 / log2(rank + 2) for rank in range(min(depth, len(answers))))


def average_precision(results: Sequence[str], answers: set[str]) -> float:
    """The mean, over all answers, of the share of answers among the results up to each."""
    ranks = [rank for rank, one in enumerate(results, 1) if one in answers]
    return sum(found / rank for found, rank in enumerate(ranks, 1)) / len(answers)
