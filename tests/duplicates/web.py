"""A web made of texts alone, from a seed: mirrors, near pairs, templates, and pages of their own."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha1
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crawl_lib.stores import Stores
from crawl_lib.text import TEXT_SCHEMA, count_words, text_profile, text_table
from tests.crawldb.crawls import Crawl, Visit
from tests.export.crawls import key

FOLDER = 1_790_000_000
VOCABULARY = [f"word{number}" for number in range(1500)]
WEIGHTS = [1 / (number + 15) for number in range(1500)]
TEMPLATE = ["Subscribe to our letter", "All rights are reserved by us"]
Texts = dict[str, str]


@dataclass
class Web:
    """`texts` by URL; which hosts mirror which."""

    texts: Texts = field(default_factory=dict)
    mirrors: list[tuple[str, str]] = field(default_factory=list)


def text_of(rng: random.Random, words: int = 200) -> list[str]:
    return rng.choices(VOCABULARY, WEIGHTS, k=words)


def edited(rng: random.Random, words: list[str], count: int) -> list[str]:
    """A text with so many of its words replaced."""
    found = list(words)
    for place in rng.sample(range(len(found)), count):
        found[place] = rng.choices(VOCABULARY, WEIGHTS)[0]
    return found


def lines(words: list[str]) -> str:
    return "\n".join(" ".join(words[start : start + 20]) for start in range(0, len(words), 20))


def make_web(
    seed: int, *, mirrors: int = 20, pairs: int = 200, templates: int = 10, others: int = 1100
) -> Web:
    """2,000 pages: mirrors of 9 pages, one of which differs; pairs; hosts of 14 pages with a template; others."""
    rng, web = random.Random(seed), Web()
    for number in range(mirrors):
        one, other = f"m{number}.example", f"mirror{number}.example"
        web.mirrors.append((one, other))
        for page in range(9):
            words = text_of(rng)
            web.texts[f"http://{one}/{page}"] = lines(words)
            web.texts[f"http://{other}/{page}"] = lines(text_of(rng) if page == 0 else words)
    for number in range(pairs):
        words = text_of(rng)
        web.texts[f"http://one{number % 50}.example/{number}"] = lines(words)
        web.texts[f"http://two{number % 40}.example/{number}"] = lines(
            edited(rng, words, rng.randint(17, 55))
        )
    for number in range(templates * 14):
        text = "\n".join([*TEMPLATE, lines(text_of(rng))])
        web.texts[f"http://t{number % templates}.example/{number}"] = text
    for number in range(others):
        web.texts[f"http://o{number % 80}.example/{number}"] = lines(text_of(rng))
    return web


def make_sites(seed: int) -> Texts:
    """Make hosts of 5 to 200 pages with a template each, and copies of their pages on the same and on other hosts."""
    rng, texts = random.Random(seed), Texts()
    sizes = [200, 150, 80, 40, 15, 5]
    for host, size in enumerate(sizes):
        template = text_of(rng, 150)
        for page in range(size):
            body = text_of(rng, rng.randint(60, 400))
            texts[f"http://h{host}.example/{page}"] = lines(template + body)
            if rng.random() < 0.3:
                copy = edited(rng, body, 1 + int(len(body) * rng.uniform(0, 0.25)))
                texts[f"http://h{host}.example/copy-{page}"] = lines(template + copy)
            if rng.random() < 0.3:
                copy = edited(rng, body, 1 + int(len(body) * rng.uniform(0, 0.1)))
                texts[f"http://h{rng.randrange(len(sizes))}.example/of-{host}-{page}"] = lines(copy)
    return texts


@dataclass
class Table:
    """`pairs` of URLs, and for each of them whether its pages are copies."""

    texts: Texts = field(default_factory=dict)
    pairs: list[tuple[str, str]] = field(default_factory=list)
    are_copies: list[bool] = field(default_factory=list)


def make_table(seed: int) -> Table:
    """Make 400 pairs of pages of 20 hosts: 200 edited copies, and 200 with the same boilerplate and other contents."""
    rng, table = random.Random(seed), Table()
    boilerplates = [text_of(rng, 300) for _ in range(20)]
    for number in range(400):
        one, other = (f"http://shop{number % 20}.example/{number}/{name}" for name in "ab")
        boilerplate = boilerplates[number % 20]
        is_copy, body = number < 200, text_of(rng, 60)
        table.texts[one] = lines(boilerplate + body)
        table.texts[other] = lines(
            boilerplate + (edited(rng, body, 2) if is_copy else text_of(rng, 60))
        )
        table.pairs.append((one, other))
        table.are_copies.append(is_copy)
    return table


def leave(stores: Stores, texts: Texts, folder: int = FOLDER) -> Crawl:
    """A segment of such pages, with its table of texts; its `digest` of a page is of the text."""
    crawl = Crawl(stores)
    crawl.segment(
        folder,
        [Visit(url, body=text, more={"mime_detected": "text/html"}) for url, text in texts.items()],
    )
    [segment] = [one for one in stores.crawl.segments() if one.folder == str(folder)]
    place = Path(stores.config.dfs_primary) / text_table(stores, segment)
    place.parent.mkdir(parents=True)
    rows = [row_of(url, text, folder + 10) for url, text in texts.items()]
    pq.write_table(
        pa.Table.from_pylist(rows, TEXT_SCHEMA), place, compression="zstd", write_page_checksum=True
    )
    return crawl


def row_of(url: str, text: str, at: int) -> dict[str, Any]:
    words = count_words(text)
    return {
        "key": key(url),
        "time": datetime.fromtimestamp(at, UTC),
        "text": text,
        "language": None,
        "terms": sorted(words.items()),
        "signature": text_profile(words) or sha1(text.encode()).digest(),
        "error": None,
    }
