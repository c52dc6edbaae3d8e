"""The rule of near duplicates, by the product of all vectors: whole numbers, so without an error."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from crawl_lib.text import count_words
from tests.duplicates.web import Texts

Floats = npt.NDArray[np.float64]
Pairs = dict[tuple[str, str], float]


def weights_of(pages: list[Counter[str]], least_pages: int) -> dict[str, int]:
    """Weigh the words of a host's pages by 100 times their smoothed idf; "" is a word that no page has."""
    have = Counter(word for words in pages for word in words)
    count = len(pages)
    if count < least_pages:
        return dict.fromkeys(["", *have], 100)
    idf = {word: math.log((1 + count) / (1 + n)) + 1 for word, n in have.items()} | {
        "": math.log(1 + count) + 1
    }
    return {word: round(100 * weight) for word, weight in idf.items()}


def brute_force(texts: Texts, least: float, least_pages: float = math.inf) -> Pairs:
    """Find all pairs of pages whose cosine is at least `least`.

    `least_pages`: of a host whose words have weights.
    """
    words = {url: found for url, text in texts.items() if (found := count_words(text))}
    hosts: dict[str, list[str]] = {}
    for url in words:
        hosts.setdefault(str(urlsplit(url).hostname), []).append(url)
    places = {
        word: n
        for n, word in enumerate(sorted({word for found in words.values() for word in found}))
    }
    counts = {
        host: np.array([_row(words[url], places) for url in urls]) for host, urls in hosts.items()
    }
    of_hosts = {
        host: weights_of([words[url] for url in urls], least_pages) for host, urls in hosts.items()
    }
    weights = {host: _weights(found, places) for host, found in of_hosts.items()}
    pairs: Pairs = {}
    for one, urls in hosts.items():
        for other, others in hosts.items():
            if one <= other:
                doubled = weights[one] + weights[other]
                first, second = counts[one] * doubled, counts[other] * doubled
                dots = first @ second.T
                squares = np.outer((first * first).sum(axis=1), (second * second).sum(axis=1))
                near = dots**2 >= least**2 * squares * 0.999999
                for row, column in zip(*map(np.ndarray.tolist, np.nonzero(near)), strict=True):
                    if one < other or row < column:
                        exact = int(dots[row, column]) / math.sqrt(
                            int((first[row] * first[row]).sum())
                            * int((second[column] * second[column]).sum())
                        )
                        if exact >= least:
                            pairs[urls[row], others[column]] = exact
    return pairs


def _row(words: Mapping[str, int], places: Mapping[str, int]) -> list[float]:
    row = [0.0] * len(places)
    for word, count in words.items():
        row[places[word]] = count
    return row


def _weights(found: Mapping[str, int], places: Mapping[str, int]) -> Floats:
    return np.array([float(found.get(word, found[""])) for word in places])
