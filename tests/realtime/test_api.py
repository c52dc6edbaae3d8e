"""The API: rights, bad input, answers, events, and its description."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from crawl_lib.errors import BusyError, ConfigError
from crawl_lib.realtime.api import ROUTES, make_app, openapi
from crawl_lib.realtime.asgi import MOST_BODY_BYTES
from crawl_lib.realtime.events import Event, Subscription
from crawl_lib.realtime.limits import TokenBuckets
from crawl_lib.realtime.metrics import METRICS, PREFIX
from crawl_lib.realtime.protocol import Body, Done, Refused
from crawl_lib.realtime.scheduler import MOST_BARE
from crawl_lib.realtime.tokens import RIGHTS, TokenFile
from crawl_lib.urls import key_of
from tests.realtime.fake import Served, Web, hop, page, redirect, run

A, B = "http://a.example/", "http://b.example/"


class TestTokens:
    def test_a_running_service_sees_a_removed_token(self, tmp_path: Path) -> None:
        running, by_hand = TokenFile(tmp_path / "t"), TokenFile(tmp_path / "t")
        one, other = by_hand.add("one", RIGHTS), by_hand.add("other", RIGHTS)
        assert running.find(one)
        by_hand.remove("one")
        assert running.find(one) is None
        assert running.find(other)

    @pytest.mark.parametrize(
        ("act", "said"),
        [
            (lambda file: file.add("there", ["read"]), "there is a token 'there' already"),
            (lambda file: file.add("new", ["reed"]), "not reed"),
            (lambda file: file.add("new", []), "not none"),
            (lambda file: file.remove("new"), "no token 'new'"),
        ],
    )
    def test_what_cannot_be_is_said(self, tmp_path: Path, act, said: str) -> None:
        file = TokenFile(tmp_path / "t")
        file.add("there", ["read"])
        with pytest.raises(ConfigError, match=said):
            act(file)

    @pytest.mark.parametrize(
        "data", [b"", b"[]", b'{"tokens":[{}]}', b"\xff", b'{"tokens":[{"name":1}]}']
    )
    def test_a_damaged_file_is_named(self, tmp_path: Path, data: bytes) -> None:
        (tmp_path / "t").write_bytes(data)
        with pytest.raises(ConfigError, match="krake realtime tokens --add"):
            TokenFile(tmp_path / "t").all()


class TestRights:
    def test_a_token_submits_no_more_than_its_rate(self, tmp_path: Path) -> None:
        async def test(served: Served) -> None:
            client = served.client_of("submit", name="slow", urls_per_s=0.5)
            body = {"urls": [A] * 300}
            assert (await client.post("/v1/urls", json=body)).status_code == 202
            answer = await client.post("/v1/urls", json={"urls": [A]})
            assert (answer.status_code, int(answer.headers["retry-after"]) > 0) == (429, True)
            assert (await served.client.post("/v1/urls", json=body)).status_code == 202
            await client.aclose()

        run(tmp_path, test)


def test_a_bucket_fills_with_time() -> None:
    now = [0.0]
    rates = TokenBuckets(most=3, clock=lambda: now[0])
    rates.take("a", 1.0, 3)
    with pytest.raises(BusyError) as caught:
        rates.take("a", 1.0, 2)
    assert caught.value.retry_after_s == 3
    now[0] = 2.0
    rates.take("a", 1.0, 2)


BAD = [
    ("POST", "/v1/urls", {"content": b""}, 400, "body"),
    ("POST", "/v1/urls", {"content": b"{"}, 400, "body"),
    ("POST", "/v1/urls", {"content": b'{"urls":["\xff"]}'}, 400, "body"),
    ("POST", "/v1/urls", {"content": b"[" * 100_000}, 400, "body"),
    ("POST", "/v1/urls", {"json": {}}, 400, "urls"),
    ("POST", "/v1/urls", {"json": {"urls": []}}, 400, "length >= 1"),
    ("POST", "/v1/urls", {"json": {"urls": [A] * 301}}, 400, "length <= 300"),
    ("POST", "/v1/urls", {"json": {"urls": [1]}}, 400, "urls"),
    ("POST", "/v1/urls", {"json": {"urls": [A], "max_age_s": -1}}, 400, "max_age_s"),
    ("POST", "/v1/urls", {"json": {"urls": [A], "polcy": "x"}}, 400, "polcy"),
    ("POST", "/v1/urls", {"json": {"urls": [A], "policy": "none"}}, 400, "no policy 'none'"),
    ("POST", "/v1/urls", {"content": b" " * (1 << 20)}, 413, "too long"),
    (
        "POST",
        "/v1/urls",
        {"json": {"urls": [A]}, "headers": {"Idempotency-Key": "x" * 201}},
        400,
        "Idempotency-Key",
    ),
    ("POST", "/v1/pages:batch", {"json": {"urls": [A] * 301}}, 400, "length <= 300"),
    ("GET", "/v1/pages", {}, 400, "url="),
    ("GET", "/v1/pages?url=", {}, 400, "url="),
    ("GET", "/v1/pages?url=a&url=b", {}, 400, "once"),
    ("GET", "/v1/pages?url=nothing", {}, 400, "no such URL"),
    ("GET", f"/v1/pages?url={A}&wait_s=61", {}, 400, "wait_s"),
    ("GET", f"/v1/pages?url={A}&wait_s=nan", {}, 400, "wait_s"),
    ("GET", f"/v1/pages?url={A}&max_age_s=-1", {}, 400, "max_age_s"),
    ("GET", f"/v1/pages?url={A}", {}, 404, "unknown"),
    ("DELETE", "/v1/pages", {}, 400, "url="),
    ("POST", "/v1/fetch", {"json": {"url": "nothing"}}, 400, "no such URL"),
    ("POST", "/v1/fetch", {"json": {"url": A, "policy": "none"}}, 400, "no policy"),
    ("GET", "/v1/events", {"headers": {"Last-Event-ID": "1-2"}}, 422, "Last-Event-ID"),
    ("GET", "/v1/events", {"headers": {"Last-Event-ID": "1" * 200}}, 422, "Last-Event-ID"),
    ("GET", "/v2", {}, 404, "Not Found"),
    ("PUT", "/v1/urls", {}, 405, "Not Allowed"),
]


def test_bad_input_gets_a_status_and_one_sentence(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        for method, path, given, status, said in BAD:
            answer = await served.client.request(method, path, **given)
            assert (answer.status_code, said in answer.json()["error"]) == (status, True), (
                path,
                answer.text,
            )
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert len(answer.json()["error"]) < 300
        assert served.web.asked == [], "reading an unknown URL fetches nothing"
        assert MOST_BODY_BYTES < 1 << 20

    run(tmp_path, test)


def test_a_batch_is_answered_in_order(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        await served.submit(A)
        await served.page(A)
        served.web.hold(B)
        await served.submit(B)
        urls = [B, "nothing", A, "http://never.example/", A]
        pages = (await served.client.post("/v1/pages:batch", json={"urls": urls})).json()["pages"]
        assert [page["url"] for page in pages] == urls
        assert [page["state"] for page in pages] == [
            "waiting",
            "unknown",
            "known",
            "unknown",
            "known",
        ]
        assert pages[2]["document"]["facts"] == {"title": A}
        assert pages[0]["document"] is None

    run(tmp_path, test)


def test_a_few_rows_of_a_file_are_read_without_a_thread(tmp_path: Path, monkeypatch) -> None:
    """A question to a thread costs more CPU than the read."""

    async def test(served: Served) -> None:
        urls = [f"http://{number}.example/" for number in range(20)]
        await served.submit(*urls)
        for url in urls:
            await served.page(url)
        asked: list[object] = []
        monkeypatch.setattr(
            asyncio.get_running_loop(), "run_in_executor", lambda *given: asked.append(given)
        )
        assert (await served.page(urls[0], wait_s=0))["state"] == "known"
        pages = (await served.client.post("/v1/pages:batch", json={"urls": urls})).json()["pages"]
        monkeypatch.undo()
        assert [page["state"] for page in pages] == ["known"] * 20
        assert not asked

    run(tmp_path, test)


def test_an_old_document_is_given_at_once_and_marked(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        await served.submit(A)
        await served.page(A)
        served.web.hold(A)
        await served.submit(A, max_age_s=0)
        found = await served.page(A, wait_s=0, max_age_s=0)
        assert (found["state"], found["stale"], found["document"]["outcome"]) == (
            "waiting",
            True,
            "ok",
        )
        assert not (await served.page(A, wait_s=0, max_age_s=1000))["stale"]

    run(tmp_path, test)


def test_a_repeated_submission_with_a_key_counts_once(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        async def post(key: str, *urls: str) -> Any:
            return await served.client.post(
                "/v1/urls", json={"urls": urls}, headers={"Idempotency-Key": key}
            )

        answers = await asyncio.gather(*(post("1", A) for _ in range(5)))
        assert {answer.text for answer in answers} == {answers[0].text}
        assert answers[0].json()["decisions"][0]["decision"] == "new"
        assert (await post("1", B)).status_code == 422
        assert (await served.page(A))["shares"] == 1
        await post("2", A)
        assert (await served.page(A))["shares"] == 2
        assert (await post("3")).status_code == 400
        assert (await post("3", A)).status_code == 202, (
            "a refused request has no answer that is kept"
        )
        shares = (await served.page(A))["shares"]
        restarted = httpx.ASGITransport(make_app(served.service, served.tokens))
        async with httpx.AsyncClient(transport=restarted, headers=served.client.headers) as client:
            again = {"json": {"urls": [A]}, "headers": {"Idempotency-Key": "1"}}
            assert (await client.post("http://service/v1/urls", **again)).status_code == 202
        assert (await served.page(A))["shares"] == shares, (
            "the table has counted it, whatever the service forgot"
        )

    run(tmp_path, test)


def test_a_deleted_row_is_unknown_and_its_fetch_is_cancelled(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        served.web.hold(A)
        await served.submit(A)
        while not served.web.asked:
            await asyncio.sleep(0)
        answer = await served.client.delete("/v1/pages", params={"url": A})
        assert answer.json() == {"deleted": 1}
        assert (await served.client.get("/v1/pages", params={"url": A})).status_code == 404
        while not served.web.cancelled:
            await asyncio.sleep(0)
        assert (await served.submit(A))[0]["decision"] == "new"

    run(tmp_path, test)


def test_a_bare_fetch_leaves_no_row(tmp_path: Path) -> None:
    web = Web()
    head, body = b"HTTP/1.1 200 OK\r\n\r\n", b"<html>\x00\xff"
    web.answers[A] = lambda wanted: [
        Body(id=wanted.id, is_head=True, data=head),
        Body(id=wanted.id, data=body[:3]),
        Body(id=wanted.id, data=body[3:]),
        Done(id=wanted.id, hop=hop(A)),
    ]
    web.answers[B] = lambda wanted: redirect(wanted, A)

    async def test(served: Served) -> None:
        answer = (await served.client.post("/v1/fetch", json={"url": A})).json()
        assert answer == {
            "url": A,
            "outcome": "ok",
            "status": 200,
            "head": "SFRUUC8xLjEgMjAwIE9LDQoNCg==",
            "body": "PGh0bWw+AP8=",
        }
        assert (await served.client.post("/v1/fetch", json={"url": B})).json()["redirect_url"] == A
        refused = (
            await served.client.post("/v1/fetch", json={"url": "http://forbidden.example/"})
        ).json()
        assert refused["outcome"] == "refused"
        assert (await served.client.get("/v1/pages", params={"url": A})).status_code == 404
        assert all(wanted.is_bare and wanted.max_body_bytes == 2 << 20 for wanted in web.asked)

    run(tmp_path, test, web)


def test_a_bare_fetch_without_a_fetcher_here_may_be_asked_of_another_scheduler(
    tmp_path: Path,
) -> None:
    web = Web()
    web.answers[A] = lambda wanted: Refused(id=wanted.id, rule="not_granted")

    async def test(served: Served) -> None:
        answer = await served.client.post("/v1/fetch", json={"url": A})
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
        assert "another scheduler" in answer.text
        web.answers[A] = lambda wanted: Done(id=wanted.id, hop=hop(A))
        assert (await served.client.post("/v1/fetch", json={"url": A})).status_code == 200

    run(tmp_path, test, web)


def test_bare_fetches_at_once_are_few(tmp_path: Path) -> None:
    """Each may hold 2 MiB in memory. After the end of one there is room again."""
    web = Web()
    go_on = web.hold(A)

    async def test(served: Served) -> None:
        ask = partial(served.client.post, "/v1/fetch", json={"url": A})
        asked = [asyncio.create_task(ask()) for _ in range(MOST_BARE)]
        while len(web.asked) < MOST_BARE:
            await asyncio.sleep(0)
        busy = await ask()
        assert (busy.status_code, busy.headers["Retry-After"]) == (429, "2")
        go_on.set()
        assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}
        assert (await ask()).status_code == 200

    run(tmp_path, test, web)


async def _first(subscription: Subscription, number: int) -> list[Event]:
    events: list[Event] = []
    stream: AsyncIterator[Event] = subscription.events()
    async for event in stream:
        if event.row is not None:
            events.append(event)
        if len(events) == number:
            break
    await stream.aclose()  # type: ignore[attr-defined]
    return events


class TestEvents:
    def test_a_subscriber_goes_on_where_it_stopped(self, connect, tmp_path: Path) -> None:
        async def test(served: Served) -> None:
            urls = [f"http://{number}.example/" for number in range(6)]
            live = Subscription(served.service)
            await live.begin(None)
            await served.submit(*urls[:3])
            first = await _first(live, 3)
            assert {event.row.key for event in first} == {key_of(url) for url in urls[:3]}
            await served.submit(*urls[3:])
            for url in urls:
                await served.page(url)
            again = Subscription(served.service)
            await again.begin(first[-1].id)
            seen = await _first(again, 6)
            assert {event.row.key for event in seen} == {key_of(url) for url in urls}, (
                "at least once, 5 s back"
            )
            ids = [int(event.id) for event in seen]
            assert ids == sorted(ids)

        run(tmp_path, test, connections=[connect])

    def test_the_stream_is_server_sent_events(self, tmp_path: Path) -> None:
        async def test(served: Served) -> None:
            sent = bytearray()
            done = asyncio.Event()

            async def send(message: Any) -> None:
                sent.extend(message.get("body", b""))
                if b"event: page" in sent:
                    done.set()

            async def receive() -> Any:
                await done.wait()
                return {"type": "http.disconnect"}

            token = served.tokens.add("events", ["read"])
            scope = {
                "type": "http",
                "method": "GET",
                "path": "/v1/events",
                "query_string": b"",
                "headers": [
                    (b"authorization", f"Bearer {token}".encode()),
                    (b"last-event-id", b"0"),
                ],
            }
            await served.submit(A)
            await served.page(A)
            await make_app(served.service, served.tokens)(scope, receive, send)
            lines = [
                line
                for line in sent.decode().splitlines()
                if line.startswith(("id:", "event:", "data:"))
            ]
            assert [line.partition(":")[0] for line in lines] == ["id", "event", "data"]
            found = json.loads(lines[2].removeprefix("data: "))
            assert (found["url"], found["document"]["outcome"]) == (A, "ok")

        run(tmp_path, test)


def test_ready_says_what_is_missing(tmp_path: Path) -> None:
    web = Web()
    web.refuses_to_start = 1

    async def test(served: Served) -> None:
        answer = await served.client.get("/readyz")
        assert (answer.status_code, answer.json()["problems"]) == (
            503,
            ["the fetcher is not ready"],
        )
        await served.submit(A)
        await served.page(A)
        assert (await served.client.get("/readyz")).status_code == 200

    run(tmp_path, test, web)


def test_metrics_are_prometheus_text(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        await served.submit(A)
        await served.page(A)
        text = (await served.client.get("/metrics")).text
        assert 'krake_realtime_decisions_total{decision="new"} 1' in text
        assert 'krake_realtime_outcomes_total{outcome="ok"} 1' in text
        assert 'krake_realtime_due{server="1"} 0' in text
        assert 'krake_realtime_latency_seconds_bucket{le="+Inf"} 1' in text
        assert 'krake_realtime_parts{fetcher="live-0"} 256' in text
        served.service.counts["store_failed"] = 123_456_789
        assert (
            "krake_realtime_store_failed_total 123456789\n"
            in (await served.client.get("/metrics")).text
        )
        described = re.findall(
            r"^# HELP krake_realtime_(\w+) (.+)\n# TYPE krake_realtime_\1 (\w+)$",
            text,
            re.MULTILINE,
        )
        assert described == [(one.name, one.text, one.kind) for one in METRICS]
        values = [line for line in text.splitlines() if not line.startswith("#")]
        assert all(re.fullmatch(r'\w+(\{\w+="[^"]+"\})? [0-9.e+-]+', line) for line in values)

    run(tmp_path, test)


def test_the_docs_have_each_metric() -> None:
    text = (Path(__file__).parents[2] / "docs" / "realtime.md").read_text()
    for one in METRICS:
        label = f"{{{one.label}}}" if one.label not in ("", "le") else ""
        assert f"| `{PREFIX}{one.name}{label}` | {one.kind} | {one.text} |\n" in text
    assert text.count(f"| `{PREFIX}") == len(METRICS)


def test_the_description_has_all_routes_and_no_other(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        described = (await served.client.get("/openapi.json")).json()
        assert described == json.loads(json.dumps(openapi(), default=str))
        app = make_app(served.service, served.tokens)
        served_routes = {
            (method.lower(), path) for path, methods in app.routes.items() for method in methods
        }
        assert {
            (method, path) for path, found in described["paths"].items() for method in found
        } == served_routes
        text = json.dumps(described)
        for reference in set(re.findall(r'"#/components/schemas/([^"]+)"', text)):
            assert reference in described["components"]["schemas"]

    run(tmp_path, test)


def test_what_came_from_the_web_is_text(tmp_path: Path) -> None:
    web = Web()
    markup = "</script><script>alert(1)</script>\u2028\x1b[31m"
    web.answers[A] = lambda wanted: page(wanted, facts={"title": markup})

    async def test(served: Served) -> None:
        await served.submit(A)
        answer = await served.client.get("/v1/pages", params={"url": A, "wait_s": 30})
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["document"]["facts"]["title"] == markup

    run(tmp_path, test, web)


def test_the_docs_have_each_route_with_its_right_and_each_decision() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "realtime.md").read_text()
    for route in ROUTES:
        assert f"{route.path}?" in text or f"{route.path}`" in text, route.path
        assert route.right is None or f"| {route.right} |" in text or route.right in text
    for decision in ("new", "waiting", "known", "refused", "busy", "unavailable"):
        assert f"\n| `{decision}` |" in text


def test_the_client_is_small() -> None:
    lines = (
        (Path(__file__).resolve().parents[2] / "crawl_lib" / "realtime" / "client.py")
        .read_text()
        .splitlines()
    )
    assert len(lines) <= 120


def test_the_file_has_no_token_and_nobody_else_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "tokens.json"
    text = TokenFile(path).add("service", ["read"])
    assert text not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert TokenFile(path).find(text).name == "service"
    assert TokenFile(path).find(text + "x") is None


def test_every_route_but_healthz_needs_a_token_with_its_right(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        for route in ROUTES:
            path = route.path + ("?url=http://a.example/" if route.query else "")
            client = served.client_of(
                *(set(RIGHTS) - {route.right}), name=f"{route.method}{route.path}"
            )
            wrong = {"Authorization": "Bearer no"}
            statuses = [
                (await client.request(route.method, path, headers=headers)).status_code
                for headers in ({"Authorization": ""}, wrong)
            ]
            assert statuses == ([200, 200] if route.right is None else [401, 401]), route
            if route.right:
                answer = await client.request(route.method, path, json={"urls": [A]})
                assert answer.status_code == 403
                assert f"no right {route.right}" in answer.json()["error"]
            await client.aclose()

    run(tmp_path, test)


def test_a_subscriber_that_reads_nothing_is_let_go(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("crawl_lib.realtime.asgi.SEND_S", 0.01)

    async def test(served: Served) -> None:
        never = asyncio.Event()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body" and message.get("more_body"):
                await never.wait()

        async def receive() -> Any:
            await never.wait()

        token = served.tokens.add("events", ["read"])
        headers = [(b"authorization", f"Bearer {token}".encode())]
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/v1/events",
            "query_string": b"",
            "headers": headers,
        }
        await make_app(served.service, served.tokens)(scope, receive, send)
        assert served.service._listeners == set()

    run(tmp_path, test)
