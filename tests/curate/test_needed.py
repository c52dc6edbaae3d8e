"""Archives of other programs, such as those of `wget -p`: which captures become requisites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.curate import import_archives
from crawl_lib.curate.needed import _steps
from crawl_lib.stores import open_stores
from tests.e2e.crawl import Result, make_config
from tests.repair.archives import answer, archive, write

HOME = (
    "<link rel=stylesheet href=/s.css><img src=/i.png><img src=/linked.png><a href=/linked.png>x</a>"
    "<img src=/moved><iframe src=/frame></iframe><a href=/page>x</a>"
)
SITE = "http://old.example"


def site() -> bytes:
    """Captures of a site whose requisites come before and behind the pages that name them."""
    png, css = {"mime": "image/png"}, {"mime": "text/css"}
    moved = answer(f"{SITE}/moved", b"", "302 Found\r\nLocation: /moved-to", **png)
    return archive(
        [
            answer(f"{SITE}/i.png", b"1", **png),
            answer(f"{SITE}/", HOME.encode()),
            answer(f"{SITE}/linked.png", b"2", **png),
            answer(f"{SITE}/page", b"<a href=/>x</a>"),
            moved,
            answer(f"{SITE}/moved-to", b"3", **png),
            answer(f"{SITE}/font", b"4", mime="font/woff2"),
            answer(f"{SITE}/s.css", b"@import 't.css';", **css),
            answer(f"{SITE}/t.css", b"@import 's.css'; @font-face{src:url(font)}", **css),
            answer(f"{SITE}/lone.png", b"5", **png),
            answer(f"{SITE}/frame", b"<a href=/i.png>x</a>"),
        ]
    )


def imported(tmp_path: Path, requisites: str, *archives: Path) -> Result:
    (tmp_path / "crawl").mkdir()
    config = make_config(tmp_path / "crawl", nodes=1, parse={"requisites": requisites})
    stages.inject(open_stores(config), run_id="run", seeds="http://other.example/")
    import_archives(open_stores(config), [str(path) for path in archives])
    return Result(config)


def hops_of(result: Result) -> dict[str, tuple[str, int]]:
    rows = result.rows("pages", ["url", "hop", "depth"])
    return {row["url"].removeprefix(SITE): (row["hop"], row["depth"]) for row in rows}


def test_captures_that_pages_name_and_none_links_to_are_requisites(tmp_path: Path) -> None:
    """The frame is a requisite, since the scope refuses the frame as a link; its link to a picture counts."""
    result = imported(tmp_path, "all", write(tmp_path / "x.warc.gz", site()))
    pages = dict.fromkeys(["/", "/i.png", "/linked.png", "/page", "/lone.png"], ("S", 0))
    first = dict.fromkeys(["/s.css", "/moved", "/frame"], ("E", 1))
    assert hops_of(result) == pages | first | dict.fromkeys(["/t.css", "/moved-to"], ("E", 2)) | {
        "/font": ("E", 3)
    }
    assert not list((tmp_path / "crawl").rglob("first"))


def test_archives_are_judged_together(tmp_path: Path) -> None:
    png = {"mime": "image/png"}
    one = write(tmp_path / "1.warc.gz", archive([answer(f"{SITE}/i.png", b"1", **png)]))
    two = write(tmp_path / "2.warc.gz", archive([answer(f"{SITE}/", b"<img src=/i.png>")]))
    assert hops_of(imported(tmp_path, "all", one, two))["/i.png"] == ("E", 1)


def test_without_requisites_all_captures_are_pages(tmp_path: Path) -> None:
    result = imported(tmp_path, "none", write(tmp_path / "x.warc.gz", site()))
    assert {hop for hop, _ in hops_of(result).values()} == {"S"}


CAPTURED: dict[bytes, Any] = dict.fromkeys([b"a", b"b", b"c", b"d"])


@pytest.mark.parametrize(
    ("named", "linked", "steps"),
    [
        ({b"a": {b"b"}, b"b": {b"c"}}, set(), {b"b": 1, b"c": 2}),
        ({b"a": {b"b"}, b"b": {b"c"}}, {b"b"}, {b"c": 1}),
        ({b"b": {b"c"}, b"c": {b"b"}}, set(), {}),
        ({b"a": {b"b", b"c"}, b"b": {b"c"}, b"c": {b"d"}}, set(), {b"b": 1, b"c": 1, b"d": 2}),
    ],
)
def test_steps_count_from_the_nearest_page(
    named: dict[bytes, set[bytes]], linked: set[bytes], steps: dict[bytes, int]
) -> None:
    """Captures that name each other, and that no page names, are pages."""
    assert _steps(CAPTURED, named, linked) == steps
