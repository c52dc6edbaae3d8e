"""The walk that the end-to-end tests trust: its element rules and its URLs, on a small tree."""

from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.web.files import FileServing
from tests.web.walk import absolute, walk

HERE = "http://127.0.9.1:80"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    pages = {
        "index.html": """<base href="/sub/"><link rel=next href=next.html><link rel=stylesheet href=../s.css>
            <a href="a&amp;b.html#x">1</a><a rel=nofollow href=hidden.html>2</a><img src="../i.png">
            <a href=mailto:x@y>3</a><a href="http://elsewhere/">4</a><a href="../dir">5</a><a href="gone.html">6</a>
            <!-- <a href="commented.html">7</a> --><a href="/i.png">8</a><a href="../index.html">itself</a>""",
        "sub/next.html": '<meta http-equiv=refresh content="5; url=refreshed.html"><iframe src="framed.html"></iframe>',
        "sub/a&b.html": '<meta name=robots content="noindex, nofollow"><a href=refreshed.html></a><a href=never.html>',
        "sub/refreshed.html": "",
        "sub/framed.html": "<a href='../index.html'>",
        "sub/hidden.html": "",
        "sub/never.html": "",
        "dir/index.html": "",
        "i.png": "",
        "s.css": "",
    }
    for name, text in pages.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_walk_follows_pages_and_records_the_rest(tree: Path) -> None:
    found = walk({HERE: tree}, [f"{HERE}/index.html"])
    shown = {url.removeprefix(HERE): outcome for url, outcome in found.outcomes.items()}
    assert shown == {
        "/index.html": "ok",
        "/sub/next.html": "ok",
        "/sub/a&b.html": "ok",
        "/sub/refreshed.html": "ok",
        "/sub/framed.html": "ok",
        "/dir": "redirect",
        "/dir/": "ok",
        "/sub/gone.html": "gone",
        "/i.png": "ok",
    }


def test_arcs_hold_unfollowed_links_but_no_redirects_and_no_self_links(tree: Path) -> None:
    found = walk({HERE: tree}, [f"{HERE}/index.html"])
    arcs = {(source.removeprefix(HERE), target.removeprefix(HERE)) for source, target in found.arcs}
    assert arcs == {
        ("/index.html", "/sub/next.html"),
        ("/index.html", "/sub/a&b.html"),
        ("/index.html", "/i.png"),
        ("/sub/a&b.html", "/sub/refreshed.html"),
        ("/sub/next.html", "/sub/refreshed.html"),
        ("/sub/next.html", "/sub/framed.html"),
        ("/sub/framed.html", "/index.html"),
    }


@pytest.mark.parametrize(
    ("href", "expected"),
    [
        ("x y.html", "/d/x%20y.html"),
        ("%7eu/\u00e9", "/d/~u/%C3%A9"),
        ("../../up", "/up"),
        ("?q=1#f", "/d/p?q=1"),
    ],
)
def test_absolute_gives_canonical_urls(href: str, expected: str) -> None:
    assert absolute(f"{HERE}/d/p", href) == HERE + expected


def test_file_server_agrees_with_the_walk_and_logs(tree: Path) -> None:
    with FileServing(tree, "127.0.9.1") as site:
        found = walk({site.url(""): tree}, [site.url("/index.html")])
        for url, outcome in found.outcomes.items():
            if outcome == "gone":
                with pytest.raises(HTTPError) as caught:
                    urlopen(url)
                caught.value.close()
            else:
                with urlopen(url) as answer:
                    assert (answer.url != url) == (outcome == "redirect")
        assert set(site.log().counts()) == set(found.outcomes)
