"""Graphs and exports as tests of ranks have them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from crawl_lib.ranks import Inlinks, starts_of
from crawl_lib.stopping import Progress, Work


def counting() -> Progress:
    """Progress that is not looked at."""
    return Progress(Work(), "rank", 0, "arcs")


def inlinks_of(arcs: np.ndarray, nodes: int) -> tuple[Inlinks, np.ndarray]:
    """A graph of rows (source, target), and its out-degrees."""
    by_target = arcs[np.lexsort((arcs[:, 0], arcs[:, 1]))]
    degrees = np.bincount(arcs[:, 0], minlength=nodes)
    return Inlinks(starts_of(np.bincount(arcs[:, 1], minlength=nodes)), by_target[:, 0]), degrees


def adjacency(path: Path) -> tuple[np.ndarray, int]:
    """Arcs of a file with lines `node neighbour neighbour ...`, nodes from 1 on; and how many nodes there are."""
    rows = [
        [int(word) - 1 for word in line.split()]
        for line in path.read_text().splitlines()
        if line.strip()
    ]
    return np.array([(row[0], target) for row in rows for target in row[1:]]), len(rows)


def cnr_2000(testdata: Path) -> tuple[np.ndarray, int]:
    """A real web graph, without arcs from a page to itself."""
    file = testdata / "graphs" / "cnr-2000.graph-txt.gz"
    if not file.is_file():
        pytest.skip(f"{file.name} is not there: it is third-party data, not part of the project")
    with gzip.open(file) as lines:
        nodes = int(next(lines))
        rows = [np.array(line.split(), np.int32) for line in lines]
    sources = np.repeat(np.arange(nodes, dtype=np.int32), [len(row) for row in rows])
    arcs = np.stack([sources, np.concatenate(rows)], axis=1)
    return arcs[arcs[:, 0] != arcs[:, 1]], nodes
