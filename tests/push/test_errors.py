"""What goes wrong at OpenSearch: what a push tries again, what it counts and tells, and what it never says."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.errors import (
    ConfigError,
    DamagedFileError,
    InputError,
    KrakeError,
    OutputConflictError,
    SearchAccessError,
    SearchServerError,
)
from crawl_lib.index import INDEX, PAGES_FILE
from crawl_lib.push import PUSH_OUTPUT, cluster, push_index
from crawl_lib.push.bulk import MAX_ROWS
from crawl_lib.stores import SearchCredentials, Secrets, Stores
from crawl_lib.versions import Versions
from tests.harms import flip
from tests.push.fake import Answer, FakeOpenSearch, Request, error, fake_opensearch
from tests.push.made import seal_pages, stores_below
from tests.search.made import page

PAGES = [page(f"p{number}", f"text of {number}") for number in range(8)]
KEYS = [one.key.hex() for one in PAGES]
PASSWORD = "päss:w@rd/secret"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long a push would have waited: it does not."""
    found: list[float] = []
    monkeypatch.setattr(cluster, "sleep", lambda work, seconds: found.append(seconds))
    return found


@pytest.fixture
def server(pauses: list[float]) -> Iterator[FakeOpenSearch]:
    with fake_opensearch() as fake:
        yield fake


@pytest.fixture
def stores(tmp_path: Path, server: FakeOpenSearch) -> Stores:
    """A crawl with an index that nobody has pushed yet."""
    secrets = Secrets(search=SearchCredentials("anna", PASSWORD))
    found = stores_below(tmp_path, server.url, secrets, wait_s=30.0)
    seal_pages(found, PAGES)
    return found


def times(
    count: int, part: str, answer: Answer | bytes
) -> Callable[[Request], Answer | bytes | None]:
    """A fault of the first requests with a part of a path."""
    seen = 0

    def fault(request: Request) -> Answer | bytes | None:
        nonlocal seen
        seen += part in request.path
        return answer if part in request.path and seen <= count else None

    return fault


PASSING: list[Answer | bytes] = [
    error(429, "es_rejected_execution_exception"),
    error(503, "cluster_manager_not_discovered_exception"),
    (502, {}),
    b"",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{",
    b"HTTP/1.1 503 Busy\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>",
]


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        *((one, "_bulk") for one in PASSING),
        *((PASSING[0], part) for part in ("_alias", "_mapping", "_count")),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_passes_is_tried_again(
    answer: Answer | bytes, part: str, stores: Stores, server: FakeOpenSearch, pauses: list[float]
) -> None:
    server.fault = times(2, part, answer)
    assert push_index(stores).sent == len(PAGES)
    assert set(server.documents("krake")) == set(KEYS)
    assert pauses == [0.5, 1.0]


@pytest.mark.parametrize("answer", PASSING[:4], ids=lambda value: str(value)[:30])
def test_what_does_not_pass_ends_the_push_within_its_patience(
    answer: Answer | bytes, stores: Stores, server: FakeOpenSearch, pauses: list[float]
) -> None:
    server.fault = times(10**6, "_bulk", answer)
    with pytest.raises(SearchServerError, match=server.url):
        push_index(stores)
    assert sum(pauses) <= 30
    assert max(pauses) <= 10
    server.forget()
    assert push_index(stores).sent == len(PAGES)


def test_a_server_that_is_not_there_is_named(tmp_path: Path, stores: Stores) -> None:
    config = replace(stores.config, push=replace(stores.config.push, url="http://127.0.0.1:1"))
    with pytest.raises(SearchServerError, match=r"http://127\.0\.0\.1:1 does not answer"):
        push_index(replace(stores, config=config))


def test_pages_that_are_refused_for_now_are_sent_again_alone(
    stores: Stores, server: FakeOpenSearch, pauses: list[float]
) -> None:
    busy = {KEYS[0]: 2, KEYS[3]: 1}

    def refuse(key: str, document: dict[str, Any]) -> Answer | None:
        busy[key] = busy.get(key, 0) - 1
        return error(429, "es_rejected_execution_exception") if busy[key] >= 0 else None

    server.refuse = refuse
    assert push_index(stores).sent == len(PAGES)
    assert [one.body.count(b'"index"') for one in server.asked("POST", "_bulk")] == [8, 2, 1]
    assert pauses == [0.5, 1.0]


def test_pages_that_are_refused_for_good_are_counted_and_named(
    stores: Stores, server: FakeOpenSearch
) -> None:
    problem = error(400, "mapper_parsing_exception", "failed to parse field [date]")
    server.refuse = lambda key, document: problem if key in KEYS[:7] else None
    with pytest.raises(InputError) as raised:
        push_index(stores)
    message = str(raised.value)
    assert "refuses 7 pages, and has taken 1" in message
    assert "mapper_parsing_exception: failed to parse field [date]" in message
    assert message.count("mapper_parsing_exception") == 5
    assert server.behind("krake") == []
    server.refuse = lambda key, document: None
    assert push_index(stores).sent == len(PAGES)


def test_batches_that_are_too_large_become_smaller(stores: Stores, server: FakeOpenSearch) -> None:
    server.fault = lambda request: (
        (413, {}) if request.body.count(b'"index"') > 3 and "_bulk" in request.path else None
    )
    assert push_index(stores).sent == len(PAGES)
    assert [one.body.count(b'"index"') for one in server.asked("POST", "_bulk")] == [
        8,
        4,
        2,
        2,
        4,
        2,
        2,
    ]


def test_a_page_that_is_too_large_for_the_server_is_named(
    stores: Stores, server: FakeOpenSearch
) -> None:
    server.fault = lambda request: (413, {}) if KEYS[2].encode() in request.body else None
    with pytest.raises(
        InputError, match=rf"refuses 1 pages.*{KEYS[2]}: \d+ bytes are more than the server takes"
    ):
        push_index(stores)


def test_batches_have_bounds_in_bytes_and_in_rows(tmp_path: Path, server: FakeOpenSearch) -> None:
    stores = stores_below(tmp_path, server.url, batch_bytes=1 << 16)
    pages = [page(f"long{number}", "x" * 30_000) for number in range(4)]
    pages += [
        page("longest", "x" * 100_000),
        *(page(f"short{number}", "x") for number in range(MAX_ROWS + 20)),
    ]
    seal_pages(stores, pages)
    assert push_index(stores).sent == len(pages)
    sizes = [(len(one.body), one.body.count(b'"index"')) for one in server.asked("POST", "_bulk")]
    assert all(rows == 1 or size <= 1 << 16 for size, rows in sizes)
    assert all(rows <= MAX_ROWS for _, rows in sizes)
    assert max(size for size, _ in sizes) > 100_000


@pytest.mark.parametrize("status", [401, 403])
def test_a_user_without_rights_is_told_what_to_correct(
    status: int, stores: Stores, server: FakeOpenSearch
) -> None:
    server.fault = lambda request: error(status, "security_exception", "no permissions for anna")
    with pytest.raises(
        SearchAccessError, match=r"no permissions for anna.*KRAKE_SEARCH_USER.*krake_search"
    ):
        push_index(stores)
    assert len(server.requests) == 1


def test_a_full_disk_is_no_matter_of_rights(stores: Stores, server: FakeOpenSearch) -> None:
    server.fault = lambda request: error(
        403, "cluster_block_exception", "disk usage exceeded flood-stage watermark"
    )
    with pytest.raises(SearchServerError, match="flood-stage watermark") as raised:
        push_index(stores)
    assert not isinstance(raised.value, SearchAccessError)


def test_redirects_are_not_followed(stores: Stores, server: FakeOpenSearch) -> None:
    with fake_opensearch() as other:
        head = f"HTTP/1.1 307 Elsewhere\r\nLocation: {other.url}/krake/_alias\r\nContent-Length: 0\r\n\r\n"
        server.fault = lambda request: head.encode()
        with pytest.raises(SearchServerError, match=r"answers with a redirect.*push\.url"):
            push_index(stores)
        assert other.requests == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"<html>Welcome</html>", "push.url must name an OpenSearch"),
        (b"[" * 100_000, "push.url must name an OpenSearch"),
        (b"7", "push.url must name an OpenSearch"),
        (b" " * 2_000_000, "more than 1 MiB"),
    ],
    ids=["html", "deep", "number", "large"],
)
def test_another_server_is_no_opensearch(
    data: bytes,
    problem: str,
    stores: Stores,
    server: FakeOpenSearch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "MAX_ANSWER_BYTES", 1 << 20)
    server.fault = lambda request: (
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data)
    )
    with pytest.raises(SearchServerError, match=problem):
        push_index(stores)


@pytest.mark.parametrize(
    "items", [None, [], 7, [{}] * 8, [{"index": {}}] * 8, [{"index": {"status": "x"}}] * 8]
)
def test_an_answer_to_a_batch_that_names_no_pages_is_an_error(
    items: Any, stores: Stores, server: FakeOpenSearch
) -> None:
    server.fault = times(1, "_bulk", (200, {"items": items}))
    with pytest.raises(SearchServerError, match="does not name each page"):
        push_index(stores)


ODD: list[Any] = [None, True, 1e999, "text", [7], {}]
"""Values in place of the right one."""
SECOND = [page("p0", "changed"), *PAGES[1:3]]


def malformed(answer: Any) -> Iterator[Any]:
    """Copies of an answer, each with an odd value, a missing name or an odd name at one place."""
    yield from ODD
    if isinstance(answer, dict):
        for name, value in answer.items():
            others = {other: answer[other] for other in answer if other != name}
            yield from (
                others,
                {**others, "../_all": value},
                {**others, "krake.try-" + "9" * 5000: value},
            )
            yield from ({**answer, name: odd} for odd in malformed(value))
    elif isinstance(answer, list):
        yield from ([odd, *answer[1:]] for odd in malformed(answer[0]))


@pytest.mark.parametrize("part", ["/_alias", "/_mapping", "/_count", "/_bulk", "/_mget"])
@pytest.mark.parametrize("is_first", [True, False])
def test_an_answer_of_another_form_is_an_error_that_names_the_server(
    part: str,
    is_first: bool,
    tmp_path: Path,
    server: FakeOpenSearch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A push ends by itself, with an error that has a type, and the next push ends well."""
    stores = stores_below(tmp_path, server.url, wait_s=1.0)
    seal_pages(stores, PAGES[:2])
    if not is_first:
        push_index(stores)
        seal_pages(stores, SECOND)
    indexes, tried = server.indexes, Counter[int]()

    def send(
        self: cluster.Cluster, method: str, path: str, data: bytes | None, kind: str
    ) -> cluster.OpenSearchAnswer:
        status, body = server.answer(method, path, data or b"", None)
        is_wanted = path.partition("?")[0].endswith(part)
        changed = [one for one in malformed(body) if isinstance(one, dict)] if is_wanted else []
        tried[len(changed)] += 1
        shown: Any = changed[number] if number < len(changed) else body
        return cluster.OpenSearchAnswer(int(status), shown, f"{self.url}: {method} {path}")

    monkeypatch.setattr(cluster.Cluster, "_send", send)
    for number in range(1000):
        tried.clear()
        server.indexes, server.requests = deepcopy(indexes), []
        with suppress(SearchServerError, InputError, OutputConflictError):
            push_index(stores)
        assert list(PUSH_OUTPUT.places_of(stores, [PAGES[0].key])) or part != "/_mget"
        assert len(server.requests) < 200
        if number >= max(tried):
            break
    assert push_index(stores).pages == len(SECOND if not is_first else PAGES[:2])


def test_a_redirect_is_not_even_read(stores: Stores, server: FakeOpenSearch) -> None:
    """requests reads the whole answer to find out where the redirect leads."""
    server.fault = lambda request: (
        b"HTTP/1.1 307 Elsewhere\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n"
    )
    with pytest.raises(SearchServerError, match=r"answers with a redirect.*push\.url"):
        push_index(stores)


@pytest.mark.parametrize(
    "note",
    [7, {}, {"krake": 7}, {"krake": {"crawl": "krake", "made_of": "", "pushed": {"version": "x"}}}],
)
def test_a_malformed_note_is_none(note: Any, stores: Stores, server: FakeOpenSearch) -> None:
    push_index(stores)
    [index] = server.indexes.values()
    index.mapping["_meta"] = note
    found = push_index(stores)
    assert (found.is_anew, found.sent) == (True, len(PAGES))


def test_the_password_is_sent_and_never_said(
    stores: Stores, server: FakeOpenSearch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    errors: list[KrakeError] = []
    faults: list[Answer | bytes] = [error(401, "security_exception"), (500, {}), b"", (429, {})]
    for fault in faults:
        server.fault = times(10**6, "_bulk", fault)
        with pytest.raises(KrakeError) as raised:
            push_index(stores)
        errors.append(raised.value)
    server.forget()
    push_index(stores)
    assert {one.authorization is None for one in server.requests} == {False}
    said = caplog.text + "".join(map(str, errors)) + repr([stores.secrets, server.indexes])
    for secret in (PASSWORD, "secret", server.requests[0].authorization or "-"):
        assert secret not in said


def test_without_a_user_no_other_one_is_made_up(
    tmp_path: Path, server: FakeOpenSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one of .netrc nor a proxy of the environment."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login other password theirs\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    stores = stores_below(tmp_path / "crawl", server.url)
    seal_pages(stores, PAGES)
    push_index(stores)
    assert {one.authorization for one in server.requests} == {None}


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example", "*.example"])
def test_a_host_that_cannot_be_is_an_error_of_ours(host: str, stores: Stores) -> None:
    config = replace(stores.config, push=replace(stores.config.push, url=f"https://{host}:1"))
    with pytest.raises((ConfigError, SearchServerError), match=re.escape(host)):
        push_index(replace(stores, config=config))


def test_a_connection_that_is_not_trusted_is_not_tried_again(
    stores: Stores, pauses: list[float]
) -> None:
    address = str(stores.config.push.url).replace("http", "https")
    config = replace(stores.config, push=replace(stores.config.push, url=address))
    with pytest.raises(SearchAccessError, match=r"no trusted connection.*REQUESTS_CA_BUNDLE"):
        push_index(replace(stores, config=config))
    assert pauses == []


@pytest.mark.parametrize(
    "url", ["http://search.example:9200", "http://10.0.0.1", "http://[2001:db8::1]:9200"]
)
def test_a_password_never_travels_readable(url: str, stores: Stores) -> None:
    config = replace(stores.config, push=replace(stores.config.push, url=url))
    with pytest.raises(ConfigError, match=r"push\.url: http:// would send the password readable"):
        push_index(replace(stores, config=config))


@pytest.mark.parametrize(
    "url", ["http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1", "https://search.example"]
)
def test_this_machine_and_https_may_have_it(url: str) -> None:
    assert not cluster.is_readable(url)


def test_an_own_authority_is_that_of_requests(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "missing.pem"))
    config = replace(stores.config, push=replace(stores.config.push, url="https://127.0.0.1:1"))
    with pytest.raises(ConfigError, match="REQUESTS_CA_BUNDLE"):
        push_index(replace(stores, config=config))


@pytest.mark.parametrize("text", ["{", "[]", '{"mappings": []}', "\xff"])
def test_a_mapping_that_is_no_mapping_is_named(text: str, tmp_path: Path, stores: Stores) -> None:
    file = tmp_path / "own.json"
    file.write_bytes(text.encode("latin-1"))
    config = replace(stores.config, push=replace(stores.config.push, mapping=str(file)))
    with pytest.raises(InputError, match=rf"{file}: is no JSON object"):
        push_index(replace(stores, config=config))


def test_a_mapping_that_opensearch_refuses_is_told(stores: Stores, server: FakeOpenSearch) -> None:
    server.fault = lambda request: (
        error(400, "mapper_parsing_exception", "no such analyser")
        if request.method == "PUT"
        else None
    )
    with pytest.raises(
        InputError, match=r"refuses the mapping \(push\.mapping\).*no such analyser"
    ):
        push_index(stores)


@pytest.mark.parametrize("name", [PAGES_FILE, ".store"])
def test_damaged_files_are_not_pushed(name: str, stores: Stores, server: FakeOpenSearch) -> None:
    version = Versions(stores, INDEX).newest()
    assert version is not None
    folder = stores.storage.local_path(version.path)
    assert folder is not None
    file = next(file for file in folder.iterdir() if file.name.endswith(name))
    flip(file)
    with pytest.raises(DamagedFileError, match="differs from the written file"):
        push_index(stores)
    assert server.behind("krake") == []
