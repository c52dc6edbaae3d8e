"""`krake show`, `krake cat`, `krake why`, `krake check`: what people ask of a page, or of a URL."""

from __future__ import annotations

import io
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from crawl_lib.ask import why as why_room
from crawl_lib.frontier import NodeLock
from demo import Serving, SynthWeb
from tests.cli.conftest import Krake, run_in_process
from tests.harms import files_of
from tests.repair.killed import run_killed
from tests.web.files import FileServing


@pytest.fixture(scope="module")
def web() -> Iterator[Serving]:
    with Serving(SynthWeb(seed=5, sites=5, pages_per_site=6, specials=False)) as found:
        yield found


@pytest.fixture(scope="module")
def crawled_once(web: Serving, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl of one small iteration, with pages that answered 404, and one export."""
    directory = tmp_path_factory.mktemp("asked")
    krake = Krake(directory, lambda words: run_killed(words, None))
    krake.configure()
    krake.ok(
        "inject",
        *web.seeds,
        web.url(0, "/no-such-page"),
        web.url(0, "/private/x"),
        "--run-id",
        "first",
    )
    krake.ok("crawl", "--iterations", "2", "--batch-size", "12")
    krake.ok("settle")
    krake.ok("export")
    return directory


@pytest.fixture
def krake(crawled_once: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Krake:
    shutil.copytree(crawled_once, tmp_path / "crawl")
    return Krake(tmp_path / "crawl", lambda words: run_in_process(capsys, words))


def test_several_urls_are_injected_by_one_command(krake: Krake) -> None:
    """Finding 9: `krake inject URL1 URL2` was refused."""
    assert "accepted" in krake.ok("inject", "http://127.0.0.1/a", "http://127.0.0.1/b").out
    assert "b.txt: is not a URL" in krake("inject", "http://127.0.0.1/a", "b.txt").error()


def test_a_page_that_answered_404_is_shown(krake: Krake, web: Serving) -> None:
    """Finding 9: `krake show` said that it "is not among the crawled pages"."""
    url = web.url(0, "/no-such-page")
    found = krake.ok("show", url, "--json").json
    assert (found["url"], found["row"]["outcome"], found["row"]["status"]) == (url, "gone", 404)
    assert found["export"] is found["node_id"] is found["out_links"] is None
    assert found["row"]["segment_path"].startswith("crawl/")
    assert krake.ok("show", found["key"], "--json").json == found
    assert (
        "is not among the"
        in krake("show", url, "--export", krake.status()["exports"][0]["name"]).error()
    )
    shown = krake.ok("show", url).out
    assert f"{url} (no export has it)" in shown
    assert "gone" in shown


def test_without_an_export_pages_are_found_in_the_segments(krake: Krake, web: Serving) -> None:
    shutil.rmtree(krake.directory / "dfs" / "export")
    assert krake.ok("show", web.seeds[0], "--json").json["row"]["outcome"] == "ok"
    assert "run `krake export` first" in krake("show", "0").error()
    assert "`krake why`" in krake("show", web.url(0, "/never-seen")).error()


def test_a_page_is_shown_to_people_with_its_links_and_numbers_as_files_have_them(
    krake: Krake, web: Serving
) -> None:
    krake.ok("graph", "link")
    krake.ok("graph", "finalize")
    found = krake.ok("show", web.seeds[0], "--json").json
    shown = krake.ok("show", web.seeds[0]).out
    assert shown.startswith(f"{web.seeds[0]} (export ")
    for link in found["out_links"]:
        assert f"{link['node_id']} {link['url']}" in shown
    assert str(found["row"]["warc_offset"]) in shown


def test_cat_prints_headers_and_body_without_codings(krake: Krake, web: Serving) -> None:
    printed = krake.ok("cat", web.seeds[0]).out
    head, _, body = printed.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 ")
    assert "ontent-" in head
    assert "<html" in body.lower()
    assert krake.ok("cat", web.seeds[0], "--body").out == body
    assert krake.ok("cat", web.url(0, "/no-such-page")).out.startswith("HTTP/1.1 404 ")


def test_cat_of_what_brought_no_answer_says_what_it_ended_in(krake: Krake, web: Serving) -> None:
    assert (
        "/private/x: brought no answer: robots_denied"
        in krake("cat", web.url(0, "/private/x")).error()
    )


def why(krake: Krake, url: str) -> dict[str, Any]:
    """What `krake why` says of a URL; to people it says the same."""
    found = krake.ok("why", url, "--json").json
    assert isinstance(found, dict)
    assert f"{found['url']} {found['answer']}" in krake.ok("why", url).out
    return found


def test_why_tells_where_a_crawled_page_came_from_and_where_its_record_is(
    krake: Krake, web: Serving
) -> None:
    found = why(krake, web.seeds[0].replace("http", "HTTP"))
    assert found["answer"] == "ended as ok"
    assert found["source"] == {"depth": 0, "list": None, "seeds": "first"}
    assert found["state"] == "crawled"
    assert found["owner"] in {"node-a", "node-b"}
    assert found["scope"] == {"accepted": True, "by": "accepted", "rule": None, "depth": 0}
    assert found["capture"]["warc_file"].endswith(".warc.gz")
    linked = next(
        url for url in truth_pages(krake) if url not in web.seeds and "no-such" not in url
    )
    assert (source := why(krake, linked)["source"])["page"].startswith("http://127.")
    assert source["depth"] >= 1
    assert why(krake, web.url(0, "/no-such-page"))["answer"] == "ended as gone"


def truth_pages(krake: Krake) -> list[str]:
    tables = (krake.directory / "dfs" / "crawl").glob("[0-9]*/node-?/pages.parquet")
    rows = [row for path in tables for row in pq.read_table(path, partitioning=None).to_pylist()]
    return [row["url"] for row in rows if row["outcome"] == "ok"]


def test_why_names_the_line_of_robots_txt(krake: Krake, web: Serving) -> None:
    found = why(krake, web.url(0, "/private/x"))
    assert found["answer"] == "ended as robots_denied"
    assert found["robots"]["line"] == "Disallow: /private/"
    assert found["robots"]["url"] == web.url(0, "/robots.txt")
    assert found["robots"]["allowed"] is False


def test_why_tells_the_place_of_what_waits(krake: Krake, web: Serving) -> None:
    krake.ok(
        "inject", *(web.url(1, f"/waits/{number}") for number in range(3)), "--run-id", "later"
    )
    url = web.url(1, "/waits/2")
    owner = why(krake, url)["owner"]
    assert why(krake, url)["answer"].endswith(
        f"{owner} has it in {why(krake, url)['waits']['where']}, and takes it in with its next task"
    )
    krake.ok("settle")
    found = why(krake, url)
    length = krake.status()["queues"][owner]["length"]
    assert (
        found["answer"]
        == f"is yet to be fetched: number {length} of {length} in the queue of {owner}"
    )
    assert found["source"]["seeds"] == "later"
    assert found["state"] == "queued"


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"urls": {"max_pages_per_host": 1}}, "host_limit"),
        ({"urls": {"max_pages_per_domain": 1}}, "domain_pages"),
        ({"traps": {"max_repeated": 1}}, "repeated_segment"),
    ],
)
def test_why_tells_which_rule_kept_a_url_out_of_the_queue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: dict[str, Any], rule: str
) -> None:
    (tmp_path / "index.html").write_text('<a href="/a/a">once</a><a href="/a/a/a">again</a>')
    with FileServing(tmp_path, "127.0.3.1") as server:
        (tmp_path / "crawl").mkdir()
        krake = Krake(tmp_path / "crawl", lambda words: run_killed(words, None))
        krake.configure(**options)
        krake.ok("inject", server.url("/index.html"))
        krake.ok("crawl", "--iterations", "2")
        krake.ok("settle")
        asked = Krake(tmp_path / "crawl", lambda words: run_in_process(capsys, words))
        found = why(asked, server.url("/a/a/a"))
        checked = asked("check", server.url("/a/a/a"), "--json").json
    assert checked["full"] == [rule], "krake check says it before it is found"
    said = (
        f"is not crawled: {server.url('/index.html')} links to this URL, but Krake rejected the URL"
    )
    assert found["answer"] == f"{said} when it was to be queued ({rule})"


def test_why_tells_when_a_failure_is_tried_again(krake: Krake) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"
    krake.ok("inject", url)
    krake.ok("crawl", "--batch-size", "1000")
    found = why(krake, url)
    assert found["capture"]["outcome"] == "connect_failed"
    assert found["capture"]["error"]
    due = max(found["waits"]["due"], found["back_off"] or "")
    assert found["answer"].endswith(f"in the queue of {found['owner']}, not before {due}")
    assert found["capture"]["retry_at"] == found["waits"]["due"]


def test_why_tells_that_a_page_was_forgotten(krake: Krake, web: Serving) -> None:
    krake.ok("forget", "--yes", web.seeds[0])
    assert why(krake, web.seeds[0])["answer"].startswith("ended as ok; forgotten since")


def test_why_looks_at_all_nodes_with_local_routing(krake: Krake, web: Serving) -> None:
    krake.ok("inject", web.url(1, "/waits"))
    krake.ok("settle")
    node = why(krake, web.url(1, "/waits"))["owner"]
    krake.configure(frontier={"routing": "local"})
    found = why(krake, web.url(1, "/waits"))
    assert (found["owner"], found["waits"]["node"]) == (None, node)


def test_why_tells_what_rejected_a_url(krake: Krake, web: Serving) -> None:
    assert why(krake, web.url(0, "/never/seen"))["answer"].startswith("was not found: ")
    followed = {row["target_url"] for row in links(krake) if row["followed"]} | {
        *truth_pages(krake)
    }
    rejected = {
        row["target_url"]: row["rule"]
        for row in links(krake)
        if row["target"] and not row["followed"]
    }
    url = next(url for url in rejected if url not in followed)
    found = why(krake, url)
    assert found["state"] == "unknown"
    assert found["answer"].endswith(
        f"links to this URL, but Krake rejected the URL ({rejected[url]})"
    )


def links(krake: Krake) -> list[dict[str, Any]]:
    tables = (krake.directory / "dfs" / "crawl").glob("[0-9]*/node-?/links.parquet")
    return [row for path in tables for row in pq.read_table(path, partitioning=None).to_pylist()]


def test_why_notes_what_this_machine_cannot_see(krake: Krake, web: Serving) -> None:
    owner = why(krake, web.seeds[0])["owner"]
    shutil.rmtree(krake.directory / "queue" / owner)
    (krake.directory / "keys" / "0.sqlite").write_bytes(b"no database" * 100)
    found = why(krake, web.seeds[0])
    assert any("not on this machine" in note for note in found["notes"])
    assert found["state"] is None
    assert "is not a URL that Krake crawls (scheme)" in krake("why", "ftp://x/").error()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("127.0.0.5:8005", "http://127.0.0.5:8005/"),
        ("example.org", "http://example.org/"),
        ("Example.org/a?b", "http://example.org/a?b"),
        ("localhost:80/x", "http://localhost/x"),
        ("word", None),
        ("mailto:me@example.org", None),
        ("ftp://example.org/", None),
    ],
)
@pytest.mark.parametrize("command", ["why", "check", "cat"])
def test_a_url_without_a_scheme_is_written_out(
    krake: Krake, command: str, text: str, meant: str | None
) -> None:
    krake.configure()
    said = krake(command, text).error()
    assert (f"{text}: has no http:// or https://: write {meant}" in said) is (meant is not None)


def test_check_fetches_once_and_leaves_nothing(krake: Krake, web: Serving) -> None:
    before = files_of(krake.directory)
    found = krake.ok("check", web.url(0, "/no-such-page"), "--json").json
    assert (found["fetch"]["outcome"], found["fetch"]["status"]) == ("gone", 404)
    assert found["as_seed"]["accepted"]
    assert found["robots"] | {"fetched": "", "expires": ""} == {
        "url": web.url(0, "/robots.txt"), "allowed": True, "line": None, "error": None, "fetched": "", "expires": "",
    }  # fmt: skip
    denied = krake("check", web.url(0, "/private/x"))
    assert denied.code == 1
    assert "Disallow: /private/" in denied.out
    assert "robots_denied" in denied.out
    assert files_of(krake.directory) == before


def test_check_of_a_strangers_site_needs_a_contact(krake: Krake) -> None:
    krake.configure(fetch={"contact": None})
    assert (
        "fetch.contact: is not set, and http://example.org/ is a site"
        in krake("check", "http://example.org").error()
    )


@pytest.mark.parametrize("words", [("show",), ("cat",), ("why",), ("status",), ("check",)])
def test_what_only_reads_waits_for_no_lock(
    krake: Krake, web: Serving, words: tuple[str, ...]
) -> None:
    with ExitStack() as stack:
        for node in ("node-a", "node-b"):
            stack.enter_context(
                NodeLock(krake.directory / "queue" / node, node, 0.0, what="a test")
            )
        krake.ok(*words, *([] if words == ("status",) else [web.seeds[0]]))


def test_a_refused_address_is_named_with_its_network_and_the_line_that_allows_it(
    krake: Krake, monkeypatch: pytest.MonkeyPatch
) -> None:
    krake.configure(fetch={"contact": "tests@localhost", "host_delay_s": 0.0})
    url, text = "http://127.0.0.5:8005/", "address 127.0.0.5 is of the inner network 127.0.0.0/8"
    cure = f'allow_networks: ["127.0.0.0/8"] under fetch in {krake.file}, then krake forget 127.0.0.5 --yes'
    checked = krake("check", url, "--json").json
    assert text in checked["fetch"]["error"]
    assert checked["cure"] == f"if it is yours: {cure}, and the same command again"
    krake.ok("inject", url)
    krake.ok("crawl", "--iterations", "1")
    found = krake.ok("why", url, "--json").json
    assert text in found["answer"]
    assert found["cure"] == f"if it is yours: {cure}, and inject it again"
    monkeypatch.chdir(krake.directory)
    assert " under fetch in krake.yml, then " in krake.ok("why", url, "--json").json["cure"]


def test_why_looks_through_a_million_queued_urls_in_less_than_five_seconds(krake: Krake) -> None:
    """The queue is laid as people lay one; by CPU, since the machine may be busy."""
    found = why(krake, "http://127.0.0.1/last")
    directory = krake.directory / "queue" / found["owner"]
    for path in directory.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with (directory / "0").open("w") as file:
        file.writelines(
            f"http://127.0.0.1/a/page/of/usual/length?number={number}\n"
            for number in range(999_999)
        )
        file.write("http://127.0.0.1/last\n")
    (directory / "state").write_text("0\n1000000\n")
    began_s = time.process_time()
    found = krake.ok("why", "http://127.0.0.1/last", "--json").json
    assert time.process_time() - began_s < 5
    assert f"number 1,000,000 of 1,000,000 in the queue of {found['owner']}" in found["answer"]


def test_shell_has_the_page_its_links_and_its_verdicts(
    krake: Krake, web: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        "print(page.title)",
        "print(verdicts['as_seed']['accepted'], verdicts['robots']['allowed'], verdicts['rejections'])",
        "print(*sorted(f'{link.followed} {link.rule} {link.url}' for link in links), sep='\\n')",
        "print(fetched.outcome, content[:9].lower(), headers.get('content-type'))",
    ]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    before = {path: path.stat().st_mtime_ns for path in krake.directory.rglob("*")}
    done = krake.ok("shell", web.seeds[0])
    assert {path: path.stat().st_mtime_ns for path in krake.directory.rglob("*")} == before
    assert "verdicts   the result of `krake check`" in done.err
    tables = (krake.directory / "dfs" / "crawl").glob("[0-9]*/node-?/links.parquet")
    rows = [row for path in tables for row in pq.read_table(path, partitioning=None).to_pylist()]
    key = krake.ok("check", web.seeds[0], "--json").json["key"]
    crawled = [
        f"{row['followed']} {row['rule']} {row['target_url']}"
        for row in rows
        if row["source"].hex() == key
    ]
    assert crawled
    for line in crawled:
        assert line in done.out
    assert f", {len(crawled)} links, of which " in done.err
    assert "ok b'<!doctype' text/html" in done.out.lower()
    assert "True True {" in done.out


def test_shell_of_what_brought_no_page_has_none(
    krake: Krake, web: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url, outcome in (
        (web.url(0, "/private/x"), "robots_denied"),
        ("http://127.0.0.1:1/", "port_refused"),
    ):
        monkeypatch.setattr(
            "sys.stdin", io.StringIO("print(page, links, verdicts['fetch']['outcome'])\n")
        )
        done = krake.ok("shell", url)
        assert f"None [] {outcome}" in done.out
        assert f"{url}: {outcome}" in done.err
    assert "not a URL" in krake("shell", "mailto:a@b").error()


def test_ctrl_c_in_a_shell_interrupts_what_runs_and_not_the_shell(
    krake: Krake, web: Serving
) -> None:
    program = "import sys; from crawl_lib.cli import main; sys.exit(main(sys.argv[1:]))"
    typed = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('goes on')\nos.kill(os.getpid(), {last})\n"
    for last, code in (("0", 0), ("signal.SIGTERM", 128 + signal.SIGTERM)):
        command = [
            sys.executable,
            "-c",
            program,
            "--config",
            str(krake.file),
            "shell",
            web.seeds[0],
        ]
        done = subprocess.run(
            command, input=typed.format(last=last), capture_output=True, text=True
        )
        assert (done.returncode, "goes on" in done.stdout) == (code, True)
        assert "KeyboardInterrupt" in done.stderr


def test_with_a_table_of_captures_why_says_what_it_did_not_search(
    krake: Krake, web: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = web.url(0, "/never-seen")
    before = krake.ok("why", url, "--json").json
    krake.ok("captures", "update")
    assert krake.ok("why", url, "--json").json == before, "two iterations: all are searched"
    monkeypatch.setattr(why_room, "LINK_ITERATIONS", 1)
    found = krake.ok("why", url, "--json").json
    assert (found["unsearched"], before["unsearched"]) == (1, 0)
    assert found["answer"].startswith(
        "was not found: no page of the newest iterations links to this URL"
    )
    assert "--all-links" in found["notes"][-1]
    assert krake.ok("why", url, "--all-links", "--json").json == before
    assert krake.ok("show", web.seeds[0], "--json").json["row"]["outcome"] == "ok"
