"""The way of a URL: submission, decision, fetch, redirects, documents, and what survives a death."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest
import uvloop

from crawl_lib.errors import KeyServerDownError
from crawl_lib.realtime.documents import Document, PageTarget, Request, request_bytes
from crawl_lib.realtime.pages import ALL_PARTS, Followed, PageServer, Wish
from crawl_lib.realtime.pages_sqlite import SqlitePages
from crawl_lib.realtime.protocol import Done, Fetch, Place, Refused
from crawl_lib.urls import key_of
from tests.realtime.fake import Served, Web, hop, page, redirect, run

A, B, C = (f"http://{name}.example/" for name in "abc")


def test_a_url_becomes_a_document(connect, tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        [decision] = await served.submit("HTTP://A.example")
        assert (decision["decision"], decision["key"]) == ("new", key_of(A).hex())
        found = await served.page(A)
        assert (found["state"], found["shares"]) == ("known", 1)
        document = found["document"]
        assert (document["url"], document["final_url"], document["outcome"]) == (A, A, "ok")
        assert document["facts"] == {"title": A}
        assert [decision["decision"] for decision in await served.submit(A)] == ["known"]
        assert served.web.urls == [A]
        assert served.service.visits == {}

    run(tmp_path, test, connections=[connect])


def test_a_thousand_submissions_of_a_url_are_one_fetch(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        event = served.web.hold(A)
        decisions = await asyncio.gather(*(served.submit(*[A] * 20) for _ in range(50)))
        names = [decision["decision"] for some in decisions for decision in some]
        assert names.count("new") == 1
        assert names.count("waiting") == 999
        event.set()
        assert (await served.page(A))["shares"] == 1000
        assert served.web.urls == [A]

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("ftp://a.example/", "scheme"),
        ("nothing", "invalid"),
        ("http://x.forbidden.example/", "rule"),
    ],
)
def test_what_the_crawl_refuses_is_refused_with_its_rule(
    tmp_path: Path, url: str, rule: str
) -> None:
    async def test(served: Served) -> None:
        first, second = await served.submit(url, A)
        assert (first["decision"], first["rule"]) == ("refused", rule)
        assert second["decision"] == "new"

    run(tmp_path, test)


def test_each_hop_of_a_chain_has_the_whole_document(connect, tmp_path: Path) -> None:
    web = Web()
    web.answers = {A: lambda wanted: redirect(wanted, B), B: lambda wanted: redirect(wanted, C)}

    async def test(served: Served) -> None:
        await served.submit(A)
        for url, hops in ((A, [A, B, C]), (B, [B, C]), (C, [C])):
            document = (await served.page(url))["document"]
            assert (document["url"], document["final_url"], document["outcome"]) == (url, C, "ok")
            assert [hop["url"] for hop in document["hops"]] == hops
            assert document["facts"] == {"title": C}
        assert (await served.page(C))["shares"] == 0, "nobody shared the target itself"
        assert served.web.urls == [A, B, C]
        assert [wanted.redirects for wanted in served.web.asked] == [0, 1, 2]

    run(tmp_path, test, web, connections=[connect])


def test_a_chain_over_several_servers_ends_on_each(tmp_path: Path) -> None:
    web = Web()
    urls = [f"http://{number}.example/" for number in range(9)]
    for one, other in pairwise(urls):
        web.answers[one] = lambda wanted, other=other: redirect(wanted, other)
    servers = [
        lambda place=place: SqlitePages(tmp_path / f"{place}-pages.sqlite") for place in range(3)
    ]

    async def test(served: Served) -> None:
        await served.submit(urls[0], urls[4])
        for number, url in enumerate(urls):
            assert len((await served.page(url))["document"]["hops"]) == 9 - number
        assert sorted(served.web.urls) == sorted(urls)

    run(tmp_path, test, web, connections=servers)


class TestTheTargetOfARedirect:
    """The wait for two transactions would cost each hop 20 ms."""

    def test_is_fetched_before_its_row_is_written_and_ends_after(
        self, tmp_path: Path, monkeypatch
    ) -> None:
        web = Web()
        web.answers[A] = lambda wanted: redirect(wanted, B)

        async def test(served: Served) -> None:
            written, follow = asyncio.Event(), served.store.follow

            async def slow(hop: Followed) -> None:
                await written.wait()
                await follow(hop)

            monkeypatch.setattr(served.store, "follow", slow)
            await served.submit(A)
            while web.urls != [A, B]:
                await asyncio.sleep(0)
            for _ in range(50):  # the answer comes, and its document waits
                await asyncio.sleep(0)
            assert (await served.client.get("/v1/pages", params={"url": B})).status_code == 404
            written.set()
            found = await served.page(A)
            assert [hop["url"] for hop in found["document"]["hops"]] == [A, B]
            assert (await served.page(B))["document"]["outcome"] == "ok"

        run(tmp_path, test, web)

    def test_is_fetched_no_more_after_the_redirecting_url_was_deleted(
        self, tmp_path: Path, monkeypatch
    ) -> None:
        web = Web()
        web.answers[A] = lambda wanted: redirect(wanted, B)
        web.hold(B)

        async def test(served: Served) -> None:
            async def never(hop: Followed) -> None:
                await asyncio.Event().wait()

            monkeypatch.setattr(served.store, "follow", never)
            await served.submit(A)
            while web.urls != [A, B]:
                await asyncio.sleep(0)
            assert (await served.client.delete("/v1/pages", params={"url": A})).json() == {
                "deleted": 1
            }
            while not web.cancelled:
                await asyncio.sleep(0)
            while served.service.visits:
                await asyncio.sleep(0)

        run(tmp_path, test, web)


def test_a_known_target_is_not_fetched_again(tmp_path: Path) -> None:
    web = Web()
    web.answers[A] = lambda wanted: redirect(wanted, B)

    async def test(served: Served) -> None:
        await served.submit(B)
        await served.page(B)
        await served.submit(A)
        assert (await served.page(A))["document"]["facts"] == {"title": B}
        assert served.web.urls == [B, A]

    run(tmp_path, test, web)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_loop_ends_as_one(tmp_path: Path, length: int) -> None:
    urls = [A, B, C][:length]
    web = Web()
    for number, url in enumerate(urls):
        web.answers[url] = lambda wanted, to=urls[(number + 1) % length]: redirect(wanted, to)

    async def test(served: Served) -> None:
        await served.submit(A)
        for url in urls:
            document = (await served.page(url))["document"]
            assert document["outcome"] == "redirect_loop"
            assert document["hops"][0]["url"] == url

    run(tmp_path, test, web)


def test_a_loop_whose_urls_are_submitted_at_once_ends_too(tmp_path: Path) -> None:
    web = Web()
    web.answers = {A: lambda wanted: redirect(wanted, B), B: lambda wanted: redirect(wanted, A)}

    async def test(served: Served) -> None:
        await served.submit(A, B)
        for url in (A, B):
            assert (await served.page(url))["document"]["outcome"] == "redirect_loop"

    run(tmp_path, test, web)


def test_a_chain_that_is_too_long_ends(tmp_path: Path) -> None:
    web = Web()
    urls = [f"http://a.example/{number}" for number in range(20)]
    for one, other in pairwise(urls):
        web.answers[one] = lambda wanted, other=other: redirect(wanted, other)

    async def test(served: Served) -> None:
        await served.submit(urls[0])
        assert (await served.page(urls[0]))["document"]["outcome"] == "too_many_redirects"
        assert served.web.urls == urls[:4]
        await served.submit(*urls)
        for url in urls:
            assert (await served.page(url))["state"] == "known", (
                "whoever finishes a URL finishes all that wait"
            )

    run(tmp_path, test, web, fetch={"max_redirects": 3})


def test_a_refused_target_is_not_fetched(tmp_path: Path) -> None:
    web = Web()
    web.answers[A] = lambda wanted: redirect(wanted, "http://x.forbidden.example/")

    async def test(served: Served) -> None:
        await served.submit(A)
        document = (await served.page(A))["document"]
        assert document["outcome"] == "filtered"
        assert "forbidden" in document["error"]
        assert served.web.urls == [A]

    run(tmp_path, test, web)


def test_a_visit_again_is_conditional_and_304_keeps_the_document(tmp_path: Path) -> None:
    web = Web()
    web.answers[A] = lambda wanted: page(wanted, etag='"1"', last_modified="yesterday")

    async def test(served: Served) -> None:
        await served.submit(A)
        first = await served.page(A)
        web.answers[A] = lambda wanted: Done(id=wanted.id, hop=hop(A, "not_modified", 304))
        [decision] = await served.submit(A, max_age_s=0)
        assert decision["decision"] == "new"
        second = await served.page(A)
        assert (web.asked[1].etag, web.asked[1].last_modified) == ('"1"', "yesterday")
        assert second["document"]["facts"] == first["document"]["facts"]
        assert second["document"]["hops"][0]["status"] == 304
        assert second["fetched_ms"] >= first["fetched_ms"]

    run(tmp_path, test, web)


def test_a_page_with_the_same_bytes_keeps_the_place_of_its_capture(
    tmp_path: Path, monkeypatch
) -> None:
    web, place = Web(), Place(warc="1.warc.gz", offset=7, length=9)
    web.answers[A] = lambda wanted: page(wanted, place=None if wanted.earlier else place)

    class Captures:
        @staticmethod
        def earlier(document: Document) -> str:
            return f"{document.warc}, {document.captured_ms}"

    async def test(served: Served) -> None:
        monkeypatch.setattr(served.service, "captures", Captures)
        await served.submit(A)
        first = (await served.page(A))["document"]
        for _ in range(2):
            await served.submit(A, max_age_s=0)
            await served.page(A)
        assert [wanted.earlier for wanted in web.asked] == [
            "",
            *[f"{place}, {first['captured_ms']}"] * 2,
        ]

    run(tmp_path, test, web)


def test_a_failure_is_tried_again_when_it_says_so(tmp_path: Path) -> None:
    web = Web()
    web.answers[A] = lambda wanted: Refused(
        id=wanted.id, rule="host_gave_up", reason="busy", retry_at=4_000_000_000
    )
    web.answers[B] = lambda wanted: Refused(
        id=wanted.id, rule="host_gave_up", reason="busy", retry_at=1
    )

    async def test(served: Served) -> None:
        await served.submit(A, B)
        assert (await served.page(A))["document"]["retry_at"] == 4_000_000_000
        assert (await served.page(B))["document"]["outcome"] == "host_gave_up"
        decisions = await served.submit(A, B)
        assert [decision["decision"] for decision in decisions] == ["known", "new"]

    run(tmp_path, test, web)


class Lapsing(frozenset):
    """The parts of a fetcher. `lapses`: so many questions for one part find no lease, which no copy of them shows."""

    lapses = 0

    def __contains__(self, part: object) -> bool:
        self.lapses -= 1
        return self.lapses < 0 and super().__contains__(part)


def test_a_row_that_a_short_lapse_turned_away_is_found_again(tmp_path: Path) -> None:
    web, parts = Web(), Lapsing(ALL_PARTS)

    def refuses(wanted: Fetch) -> Refused:
        parts.lapses = 1
        del web.answers[A]
        return Refused(id=wanted.id, rule="not_granted")

    async def test(served: Served) -> None:
        served.service.link.parts = parts
        await served.submit(A)
        assert (await served.page(A))["document"]["outcome"] == "ok"
        assert web.urls == [A, A]

    web.answers[A] = refuses
    run(tmp_path, test, web)


def test_pages_of_a_site_share_the_probe_of_a_picture_behind_redirects(tmp_path: Path) -> None:
    web = Web()
    image, target = "http://pictures.example/1.png", "http://other.example/1.png"
    short, pages = "http://short.example/1", [f"{A}{number}" for number in range(5)]
    for url in pages:
        web.answers[url] = lambda wanted: page(wanted, facts={"image": {"url": image}})
    web.answers[short] = lambda wanted: redirect(wanted, pages[0])
    web.answers[image] = lambda wanted: redirect(wanted, target)
    web.answers[target] = lambda wanted: page(wanted, facts={"width": 3})
    released = web.hold(target)

    async def test(served: Served) -> None:
        await served.submit(short, *pages, policy="cards")
        for url in (short, *pages):
            assert "image" not in (await served.page(url))["document"]
        released.set()
        for url in (short, *pages):
            while "image" not in (document := (await served.page(url))["document"]):
                await asyncio.sleep(0)
            assert document["image"] == {"url": image, "outcome": "ok", "width": 3}
            assert [hop["url"] for hop in document["hops"]] == (
                [short, pages[0]] if url == short else [url]
            )
        probes = [wanted for wanted in web.asked if wanted.is_probe]
        assert [wanted.url for wanted in probes] == [image, target]
        assert all(wanted.later for wanted in probes), "pages come first"
        assert probes[1].via == key_of(image).hex()

    run(tmp_path, test, web, realtime={"policies": [{"name": "cards", "image": "probe"}]})


def test_forbidden_pictures_and_endless_redirects_of_pictures_are_told(tmp_path: Path) -> None:
    web = Web()
    images = [
        "http://forbidden.example/1",
        "http://pictures.example/loop",
        "http://pictures.example/away",
        "ftp://x/",
    ]
    outcomes = ["refused", "too_many_redirects", "refused", "refused"]
    for number, image in enumerate(images):
        web.answers[f"{A}{number}"] = lambda wanted, image=image: page(
            wanted, facts={"image": {"url": image}}
        )
    web.answers[images[1]] = lambda wanted: redirect(wanted, images[1])
    web.answers[images[2]] = lambda wanted: redirect(wanted, images[0])

    async def test(served: Served) -> None:
        await served.submit(*(f"{A}{number}" for number in range(4)), policy="cards")
        for number, outcome in enumerate(outcomes):
            while "image" not in (document := (await served.page(f"{A}{number}"))["document"]):
                await asyncio.sleep(0)
            assert document["image"]["outcome"] == outcome
        assert not any(wanted.url == images[0] for wanted in web.asked)

    run(tmp_path, test, web, realtime={"policies": [{"name": "cards", "image": "probe"}]})


def test_a_policy_limits_the_fetch_and_probes_the_picture(tmp_path: Path) -> None:
    web = Web()
    image = "http://pictures.example/1.png"
    web.answers[A] = lambda wanted: page(wanted, facts={"title": "A", "image": {"url": image}})
    web.answers[image] = lambda wanted: page(wanted, facts={"width": 3, "height": 2})
    policy = {
        "name": "cards",
        "image": "probe",
        "max_body_bytes": 1000,
        "mime_types": ["text/html"],
        "time_limit_s": 3,
    }

    async def test(served: Served) -> None:
        event = web.hold(image)
        await served.submit(A, policy="cards")
        assert "image" not in (await served.page(A))["document"], (
            "the document is there before the picture"
        )
        changed = served.service.reader(key_of(A))
        event.set()
        await changed
        seen = (await served.page(A))["document"]["image"]
        assert seen == {"url": image, "outcome": "ok", "width": 3, "height": 2}
        first, second = web.asked
        assert (first.max_body_bytes, first.mime_types, first.time_limit_s) == (
            1000,
            ("text/html",),
            3,
        )
        assert (second.is_probe, second.via) == (True, key_of(A).hex())

    run(tmp_path, test, web, realtime={"policies": [policy]})


class TestDeath:
    def test_rows_that_wait_hold_no_due_rows_up(self, tmp_path: Path, monkeypatch) -> None:
        """After a kill the rows of many chains may wait, and each asks the table for its target."""

        async def test(served: Served) -> None:
            going_on = asyncio.Event()

            async def hold(*_: object) -> None:
                going_on.set()
                await asyncio.Event().wait()

            monkeypatch.setattr(served.service.redirects, "_go_on", hold)
            waiting = Request(url=A, target=PageTarget(url=B, key=key_of(B).hex(), how="redirect"))
            await served.store.submit(Wish(key_of(A), 0, request_bytes(waiting)))
            await served.store.follow(
                Followed(key_of(A), key_of(B), request_bytes(waiting), 1 << 60)
            )
            served.service.note_problem(KeyServerDownError("away"))
            await going_on.wait()
            await served.store.submit(Wish(key_of(C), 0, request_bytes(Request(url=C))))
            served.service.note_problem(KeyServerDownError("away"))
            while C not in served.web.urls:
                await asyncio.sleep(0)

        run(tmp_path, test)

    def test_a_picture_is_probed_after_a_restart(
        self, connect, tmp_path: Path, monkeypatch
    ) -> None:
        """The row stays due until the probe has ended, and is known meanwhile. Only a restart begins the URL again."""
        image = "http://pictures.example/1.png"
        policy = {"realtime": {"policies": [{"name": "cards", "image": "probe"}]}}

        def web_of() -> Web:
            web = Web()
            web.answers[A] = lambda wanted: page(wanted, facts={"image": {"url": image}})
            web.answers[image] = lambda wanted: page(wanted, facts={"width": 3})
            return web

        async def before(served: Served) -> None:
            served.web.hold(image)
            await served.submit(A, policy="cards")
            assert (await served.page(A))["state"] == "known"
            while image not in served.web.urls:
                await asyncio.sleep(0)
            [decision] = await served.submit(A, policy="cards")
            assert decision["decision"] == "known"
            await served.service.redirects.go_on(0)
            assert served.service.visits == {}
            assert (await served.store.queue(0)).due == 0, "nobody waits for the document"

        async def after(served: Served) -> None:
            while image not in served.web.urls:
                await asyncio.sleep(0)
            while "image" not in (found := await served.page(A))["document"]:
                await asyncio.sleep(0)
            assert found["document"]["image"]["width"] == 3
            row = await served.store.state(key_of(A))
            assert row is not None
            assert row.due_ms is None

        run(tmp_path, before, web_of(), connections=[connect], **policy)
        run(tmp_path, after, web_of(), connections=[connect], **policy)

    def test_a_page_is_fetched_again_for_who_asks_before_its_picture_came(
        self, connect, tmp_path: Path
    ) -> None:
        web, image = Web(), "http://pictures.example/1.png"
        web.answers[A] = lambda wanted: page(wanted, facts={"image": {"url": image}})

        async def test(served: Served) -> None:
            web.hold(image)
            await served.submit(A, policy="cards")
            await served.page(A)
            [decision] = await served.submit(A, policy="cards", max_age_s=0)
            assert decision["decision"] == "new"
            while web.urls.count(A) < 2:
                await asyncio.sleep(0)

        run(
            tmp_path,
            test,
            web,
            connections=[connect],
            realtime={"policies": [{"name": "cards", "image": "probe"}]},
        )

    def test_a_dead_fetcher_is_started_again_and_its_urls_are_asked_for_again(
        self, tmp_path: Path
    ) -> None:
        web = Web()
        deaths = iter([None])
        web.answers[A] = lambda wanted: next(deaths, page(wanted))
        web.refuses_to_start = 1

        async def test(served: Served) -> None:
            await served.submit(A, B)
            for url in (A, B):
                assert (await served.page(url))["document"]["outcome"] == "ok"
            assert served.service.link.restarts == 2
            assert web.started == 2

        run(tmp_path, test, web)

    def test_urls_that_come_before_the_death_is_known_wait_for_the_next_fetcher(
        self, tmp_path: Path
    ) -> None:
        """The transport is closed before the reader is told. uvloop's transport takes no line then."""

        async def test(served: Served) -> None:
            await served.submit(A)
            await served.page(A)
            line = served.service.link._writer
            assert line is not None
            fetches = [
                asyncio.create_task(served.service.link.fetch(url=url, key=key_of(url).hex()))
                for url in (B, C)
            ]
            line.transport.abort()
            assert [said.hop.outcome for said in await asyncio.gather(*fetches)] == ["ok", "ok"]
            assert served.web.started == 2

        run(tmp_path, test, loop=uvloop.new_event_loop)

    def test_a_page_that_kills_each_fetcher_ends(self, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.setattr("crawl_lib.realtime.link.FetcherLink.longest_pause_s", 0.01)
        web = Web()
        web.answers[A] = lambda wanted: None

        async def test(served: Served) -> None:
            await served.submit(A, B)
            assert (await served.page(A))["document"]["outcome"] == "fetcher_died"
            assert (await served.page(B))["document"]["outcome"] == "ok"

        run(tmp_path, test, web)

    def test_what_was_due_is_due_after_a_restart(self, connect, tmp_path: Path) -> None:
        web = Web()
        web.answers[A] = lambda wanted: redirect(wanted, B)
        web.hold(B)
        web.hold(C)

        async def first(served: Served) -> None:
            await served.submit(A, C)
            while B not in served.web.urls:
                await asyncio.sleep(0)

        async def second(served: Served) -> None:
            for url, final in ((A, B), (B, B), (C, C)):
                assert (await served.page(url))["document"]["final_url"] == final

        run(tmp_path, first, web, connections=[connect])
        run(tmp_path, second, Web(), connections=[connect])

    def test_a_row_whose_target_was_never_submitted_ends(self, tmp_path: Path) -> None:
        """The service was killed between the two steps of a redirect."""
        web = Web()
        web.hold(A)

        async def first(served: Served) -> None:
            await served.submit(A)
            request = redirect(served.web.asked[0] if served.web.asked else await _asked(served), B)
            row = await served.store.state(key_of(A))
            assert row is not None
            waits = (
                b'{"url":"%s","hop":{"url":"%s","key":"%s","outcome":"redirect"},"target":%s}'
                % (
                    A.encode(),
                    A.encode(),
                    key_of(A).hex().encode(),
                    b'{"url":"%s","key":"%s","how":"redirect"}'
                    % (B.encode(), key_of(B).hex().encode()),
                )
            )
            assert request.target is not None
            await served.store.follow(
                Followed(key_of(A), key_of(B), waits, await served.store.epoch(key_of(A)))
            )

        async def second(served: Served) -> None:
            assert (await served.page(A))["document"]["final_url"] == B
            assert served.web.urls == [B]

        run(tmp_path, first, web)
        run(tmp_path, second, Web())


async def _asked(served: Served):
    while not served.web.asked:
        await asyncio.sleep(0)
    return served.web.asked[0]


class Away(SqlitePages):
    """A server that is away while `is_away` says so."""

    is_away = False

    def _down(self) -> None:
        if type(self).is_away:
            raise KeyServerDownError(f"{self.name}: does not answer")

    def _submit(self, wishes, counted) -> None:
        self._down()
        super()._submit(wishes, counted)

    def _finish(self, documents) -> None:
        self._down()
        super()._finish(documents)

    def read(self, keys):
        self._down()
        return super().read(keys)


def test_one_server_away_stops_its_urls_only(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("crawl_lib.realtime.store.DOWN_S", 0.05)

    class Second(Away):
        pass

    def first() -> PageServer:
        return SqlitePages(tmp_path / "0-pages.sqlite")

    def second() -> PageServer:
        return Second(tmp_path / "1-pages.sqlite")

    urls = [f"http://{number}.example/" for number in range(20)]
    low = [url for url in urls if key_of(url)[0] < 128]
    high = [url for url in urls if key_of(url)[0] >= 128]

    async def test(served: Served) -> None:
        event = served.web.hold(high[0])
        await served.submit(high[0])
        Second.is_away = True
        event.set()
        decisions = await served.submit(*low, *high[1:])
        by_name = {decision["url"]: decision["decision"] for decision in decisions}
        assert {by_name[url] for url in low} == {"new"}
        assert {by_name[url] for url in high[1:]} == {"unavailable"}
        answer = await served.client.post("/v1/urls", json={"urls": high[1:]})
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        for url in low:
            assert (await served.page(url))["state"] == "known"
        pages = (await served.client.post("/v1/pages:batch", json={"urls": urls})).json()["pages"]
        assert {page["state"] for page in pages if page["url"] in low} == {"known"}
        assert {page["state"] for page in pages if page["url"] in high} == {"unavailable"}
        written = served.service.reader(key_of(high[0]))
        Second.is_away = False
        await written
        assert (await served.page(high[0]))["document"]["outcome"] == "ok", (
            "the document is written once it can be"
        )

    run(tmp_path, test, connections=[first, second])


class TestBackPressure:
    def test_a_host_with_too_many_urls_is_busy_and_others_go_on(self, tmp_path: Path) -> None:
        async def test(served: Served) -> None:
            urls = [f"{A}{number}" for number in range(10)]
            for url in urls:
                served.web.hold(url)
            decisions = [(await served.submit(url))[0] for url in urls]
            names = [decision["decision"] for decision in decisions]
            assert names == ["new"] * 7 + ["busy"] * 3, (
                "a host's 7 URLs at 1 s each are more than 6 s"
            )
            assert decisions[3]["wait_s"] == 3.0
            assert decisions[-1]["retry_after_s"] == 7
            assert (await served.submit(urls[0]))[0]["decision"] == "waiting"
            assert (await served.submit(B))[0]["decision"] == "new"
            assert (
                await served.client.get("/v1/pages", params={"url": urls[-1]})
            ).status_code == 404

        run(tmp_path, test, realtime={"max_wait_s": 6.0})

    def test_urls_of_one_submission_count_too(self, tmp_path: Path) -> None:
        async def test(served: Served) -> None:
            urls = [f"{A}{number}" for number in range(10)]
            for url in urls:
                served.web.hold(url)
            names = [decision["decision"] for decision in await served.submit(*urls)]
            assert (names.count("new"), names.count("busy")) == (7, 3)

        run(tmp_path, test, realtime={"max_wait_s": 6.0})

    def test_a_known_url_of_a_busy_host_is_known(self, tmp_path: Path) -> None:
        async def test(served: Served) -> None:
            await served.submit(A)
            await served.page(A)
            for number in range(3):
                served.web.hold(f"{A}{number}")
                await served.submit(f"{A}{number}")
            assert (await served.submit(A))[0]["decision"] == "known"

        run(tmp_path, test, realtime={"max_wait_s": 1.0})

    def test_too_many_urls_get_429(self, tmp_path: Path) -> None:
        async def test(served: Served) -> None:
            urls = [f"http://{number}.example/" for number in range(5)]
            for url in urls:
                served.web.hold(url)
            await served.submit(*urls)
            answer = await served.client.post("/v1/urls", json={"urls": [A]})
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) > 0
            assert "realtime.max_waiting" in answer.json()["error"]

        run(tmp_path, test, realtime={"max_waiting": 5})


def test_a_damaged_row_stops_no_other_and_is_fetched_anew(tmp_path: Path) -> None:
    web = Web()
    web.answers[B] = lambda wanted: redirect(wanted, A)
    web.hold(C)

    async def first(served: Served) -> None:
        await served.submit(A, C)
        await served.page(A)

    async def second(served: Served) -> None:
        assert (await served.submit(C))[0]["decision"] == "waiting"
        assert (await served.page(C))["document"]["outcome"] == "ok"
        await served.submit(B)
        assert (await served.page(B))["document"]["outcome"] == "deleted", (
            "the target's document cannot be read"
        )
        await served.submit(A, max_age_s=0)
        assert (await served.page(A))["document"]["outcome"] == "ok"
        assert served.service.counts["rows_damaged"] > 0

    run(tmp_path, first, web)
    pages = SqlitePages(tmp_path / "0-pages.sqlite")
    pages._changed(f"UPDATE krakepages SET request = x'00' WHERE hash = x'{key_of(C).hex()}'")
    pages._changed(f"UPDATE krakepages SET data = x'7b' WHERE hash = x'{key_of(A).hex()}'")
    pages.close()
    web.held.clear()
    run(tmp_path, second, web)
