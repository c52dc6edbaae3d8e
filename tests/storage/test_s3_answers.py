"""Answers of object stores and of what stands before them, other than the usual ones."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from crawl_lib.errors import PathNotFoundError, StorageError, StorageRightsError, TargetExistsError
from crawl_lib.storage import s3_client
from crawl_lib.storage.s3_client import S3Client, S3Object, server_time
from crawl_lib.storage.s3_files import MOST_PARTS, PART_BYTES, copy_object
from tests.contracts.kills import FILES, filled, shown
from tests.contracts.storage import StorageContract
from tests.s3 import CREDENTIALS, S3Server, behind, s3_server, without

App = Callable[..., Iterable[bytes]]
Answer = tuple[str, str]
"""A status line and a body."""
GONE = "<Error><Code>{}</Code><Message>no</Message></Error>"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


def answering(method: str, words: str, *answers: Answer) -> App:
    """Return a proxy that answers the first requests of a kind by itself. `words`: in their path and query."""
    left = list(answers)

    def proxy(app: App, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        asked = f"{environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        if not left or environ["REQUEST_METHOD"] != method or words not in asked:
            return app(environ, start)
        status, body = left.pop(0)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body.encode()]

    return proxy


def with_etags(change: Callable[[str], str]) -> App:
    """Return a proxy that changes each ETag, in headers and in lists."""

    def proxy(app: App, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        given: list[Any] = []
        body = b"".join(app(environ, lambda *words: given.extend(words)))
        text = re.sub(
            "(?<=<ETag>)[^<]*(?=</ETag>)", lambda found: change(found[0]), body.decode("latin-1")
        )
        body = text.encode("latin-1") if body.startswith(b"<?xml") else body
        headers = {**dict(given[1]), "Content-Length": str(len(body))}
        if environ["REQUEST_METHOD"] == "HEAD":
            headers["Content-Length"] = dict(given[1]).get("Content-Length", "0")
        tags = {name: change(value) for name, value in headers.items() if name.lower() == "etag"}
        start(given[0], list({**headers, **tags}.items()))
        return [body]

    return proxy


@pytest.mark.parametrize(
    "answer",
    [
        ("408 Request Timeout", ""),
        ("425 Too Early", ""),
        ("429 Too Many Requests", GONE.format("TooManyRequests")),
        ("429 Too Many Requests", ""),
        ("409 Conflict", GONE.format("ConditionalRequestConflict")),
        ("400 Bad Request", GONE.format("IncompleteBody")),
        ("503 Slow Down", GONE.format("SlowDown")),
        ("200 OK", GONE.format("InternalError")),
        ("200 OK", "<html>Please log in"),
    ],
)
def test_a_list_that_may_be_answered_later_is_asked_for_again(server, answer):
    store = server.store(sleep=lambda seconds: None)
    store.write_bytes("x/f", b"1")
    with behind(server, answering("GET", "list-type=2", answer, answer)):
        assert [entry.name for entry in store.list("x")] == ["f"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            ("403 Forbidden", GONE.format("RequestTimeTooSkewed")),
            "clocks of this machine and of the server differ",
        ),
        (("403 Forbidden", GONE.format("InvalidObjectState")), "archived"),
        (("403 Forbidden", GONE.format("AccessDenied")), "no permission"),
        (("301 Moved", GONE.format("PermanentRedirect")), r"correct s3\.region and s3\.endpoint"),
        (("307 Moved", ""), r"correct s3\.region and s3\.endpoint"),
        (
            ("400 Bad", GONE.format("AuthorizationHeaderMalformed")),
            r"correct s3\.region and s3\.endpoint",
        ),
        (("501 Not", GONE.format("NotImplemented")), "does not know this request"),
        (("501 Not", ""), "does not know this request"),
        (("400 Bad", GONE.format("Odd").replace("no", "x" * 9000)), "^.{1,600}$"),
    ],
)
def test_a_list_that_is_refused_is_asked_for_once_and_says_what_to_do(server, answer, said):
    slept: list[float] = []
    store = server.store(sleep=slept.append)
    with (
        behind(server, answering("GET", "list-type=2", *[answer] * 5)),
        pytest.raises(StorageError, match=said),
    ):
        store.list("x")
    assert slept == []


class TestPagesOfTwoKeys(StorageContract):
    """A server may answer a LIST with fewer than a thousand keys."""

    @pytest.fixture
    def storage(self, server):
        def proxy(app: App, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            if "list-type=2" in environ["QUERY_STRING"]:
                environ["QUERY_STRING"] += "&max-keys=2"
            return app(environ, start)

        with behind(server, proxy):
            yield server.store()


@pytest.mark.parametrize(
    "change",
    [lambda etag: etag.replace('"', ""), lambda etag: f'W/"{etag.strip(chr(34))}"'],
    ids=["bare", "weak"],
)
def test_etags_are_compared_however_they_are_written(server, change):
    """Those of lists alone, and of headers alone, would differ from the others."""
    root = uuid.uuid4().hex
    with behind(server, with_etags(change)):
        filled(server.store(root), "x/.h")
        server.store(root).rename("x/.h", "x/t")
    assert shown(server.store(root), "x/t") == FILES


@pytest.mark.parametrize(
    "act", [lambda store: store.write_bytes("x/n", b"1"), lambda store: store.read_bytes("x/f")]
)
def test_a_server_without_etags_is_named(server, act):
    root = uuid.uuid4().hex
    server.store(root).write_bytes("x/f", b"1")
    with (
        behind(server, with_etags(lambda etag: "")),
        pytest.raises(StorageError, match="gives no ETag"),
    ):
        act(server.store(root))


def test_a_first_page_may_have_no_key(server):
    client = server.store()._client
    client.create("x/f", b"1")
    page = "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken>"
    empty = ("200 OK", f"{page.format('')}</ListBucketResult>")
    more = ("200 OK", f"{page.format('more')}</ListBucketResult>")
    with (
        behind(server, answering("GET", "list-type=2", empty)),
        pytest.raises(StorageError, match="the next page"),
    ):
        client.has_below("x/")
    with (
        behind(server, answering("GET", "list-type=2", more, more)),
        pytest.raises(StorageError, match="next page"),
    ):
        client.has_below("x/")
    found = "<ListBucketResult><Contents><Key>k/x/f</Key><Size>1</Size><ETag>e</ETag></Contents></ListBucketResult>"
    with behind(server, answering("GET", "list-type=2", more, ("200 OK", found))):
        assert client.has_below("x/")


def test_a_key_that_cannot_be_deleted_now_is_deleted_later(server):
    store = server.store("later", sleep=lambda seconds: None)
    filled(store, "x/d")
    problem = "<Error><Key>later/x/d/a</Key><Code>{}</Code><Message>no</Message></Error>"
    passing = [
        ("200 OK", f"<DeleteResult>{problem.format(code)}</DeleteResult>")
        for code in ("SlowDown", "NoSuchKey")
    ]
    with behind(server, answering("POST", "delete", *passing)):
        store._client.delete_all(["x/d/a"])
    refused = ("200 OK", f"<DeleteResult>{problem.format('AccessDenied')}</DeleteResult>")
    with (
        behind(server, answering("POST", "delete", refused)),
        pytest.raises(StorageRightsError, match="x/d/a"),
    ):
        store._client.delete_all(["x/d/a"])
    store.delete("x/d")
    assert store._client.below("x/d") == []


def test_an_error_in_an_answer_of_status_200_is_one(server):
    root = uuid.uuid4().hex
    store = server.store(root, sleep=lambda seconds: None)
    for name, code in (("x/f", "InternalError"), ("x/g", "PreconditionFailed")):
        file = store.open_write(name)
        file.write(bytes(PART_BYTES))
        with behind(server, answering("POST", "uploadId", ("200 OK", GONE.format(code)))):
            if code == "InternalError":
                file.close()
            else:
                with pytest.raises(TargetExistsError):
                    file.close()
    assert [entry.name for entry in store.list("x")] == ["f"]


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_an_upload_that_a_rule_of_the_bucket_ended_is_no_missing_file(server, method):
    store = server.store()
    store.write_bytes("x/.h/f", b"1")
    ended = ("404 Not Found", GONE.format("NoSuchUpload"))
    with behind(server, answering(method, "uploadId", ended)):
        store.rename("x/.h", "x/t")
    assert store.read_bytes("x/t/f") == b"1"
    with (
        behind(server, answering(method, "uploadId", ended)),
        pytest.raises(StorageError, match=r"\w: cannot be \w+: the upload was ended") as caught,
    ):
        store.rename("x/t/f", "x/u")
    assert not isinstance(caught.value, PathNotFoundError)


def test_a_source_that_is_replaced_meanwhile_is_no_existing_target(server):
    store = server.store()
    store.write_bytes("x/f", b"1")
    failed = ("412 Precondition Failed", GONE.format("PreconditionFailed"))
    with (
        behind(server, answering("PUT", "partNumber", failed)),
        pytest.raises(
            StorageError, match="x/f: cannot be copied: was replaced meanwhile"
        ) as caught,
    ):
        store.rename("x/f", "x/g")
    assert not isinstance(caught.value, TargetExistsError)


def test_a_file_that_is_replaced_while_it_is_read_is_no_existing_target(server):
    store = server.store()
    store.write_bytes("x/f", b"12")
    failed = ("412 Precondition Failed", GONE.format("PreconditionFailed"))
    with (
        behind(server, answering("GET", "x/f", failed)),
        pytest.raises(StorageError, match="x/f: cannot be read: was replaced meanwhile") as caught,
    ):
        store.read_bytes("x/f")
    assert not isinstance(caught.value, TargetExistsError)


def test_a_copy_of_the_largest_object_has_as_many_parts_as_a_server_takes(server):
    class Copies:
        """A client that notes the ranges of parts."""

        def __init__(self) -> None:
            self.ranges: list[str] = []

        def create_multipart_upload(self, **_: object) -> dict[str, str]:
            return {"UploadId": "1"}

        def upload_part_copy(self, **words: str) -> dict[str, dict[str, str]]:
            self.ranges.append(words["CopySourceRange"])
            return {"CopyPartResult": {"ETag": "e"}}

        def complete_multipart_upload(self, **_: object) -> dict[str, str]:
            return {"ETag": "e"}

    fake = Copies()
    failures = server.store()._client._failures
    client = S3Client(server.config(), CREDENTIALS, opened=(fake, failures))
    copy_object(client, S3Object("f", 5 << 40, "e"), "g")
    ends = [tuple(map(int, text.removeprefix("bytes=").split("-"))) for text in fake.ranges]
    assert len(ends) <= MOST_PARTS
    assert [first for first, _ in ends] == [0, *(last + 1 for _, last in ends[:-1])]
    assert ends[-1][1] + 1 == 5 << 40


def test_the_age_of_an_upload_is_told_by_the_clock_of_the_server(server, monkeypatch):
    """The server says that each upload began at 2010-11-10T20:48:33Z."""
    store = server.store()
    store.open_write("x/f").write(bytes(PART_BYTES))
    found = {}
    for hour in (20, 21):
        monkeypatch.setattr(
            s3_client, "server_time", lambda _, hour=hour: datetime(2010, 11, 11, hour, tzinfo=UTC)
        )
        found[hour] = store.sweep(dry_run=True)
    assert found == {20: [], 21: ["x/f (an unfinished upload)"]}


@pytest.mark.parametrize("zone", ["GMT", "-0000", "+0000"])
def test_the_clock_of_the_server_is_its_date(zone):
    date = {"date": f"Thu, 11 Nov 2010 20:00:00 {zone}"}
    assert server_time({"ResponseMetadata": {"HTTPHeaders": date}}) == datetime(
        2010, 11, 11, 20, tzinfo=UTC
    )


@pytest.mark.parametrize("headers", [{}, {"date": "today"}])
def test_without_a_date_the_clock_of_this_machine_counts(headers):
    found = server_time({"ResponseMetadata": {"HTTPHeaders": headers}})
    assert abs(datetime.now(UTC) - found) < timedelta(hours=1)


def test_names_may_have_odd_characters(server):
    names = sorted(["a b", "ä", "%41", "a+b", "a&b=c", "'\"", "<x>", "#?;", "\\", "~*()!"])
    store = server.store()
    for name in names:
        store.write_bytes(f"a +%/{name}", b"1")
    assert [entry.name for entry in store.list("a +%")] == names
    store.rename("a +%", "ä &;")
    for name in names:
        assert store.read_bytes(f"ä &;/{name}") == b"1"
    assert [entry.name for entry in store.list("")] == ["ä &;"]
    assert store.delete("ä &;")
    assert store.list("") == []


@pytest.mark.parametrize(
    ("header", "methods", "said"),
    [
        ("If-None-Match", "PUT POST", "If-None-Match of a PUT"),
        ("If-None-Match", "POST", "If-None-Match of the end of an upload"),
        ("If-Match", "PUT DELETE", "If-Match of a PUT"),
        ("If-Match", "DELETE", "If-Match of a DELETE"),
    ],
)
def test_a_proxy_that_removes_a_condition_is_refused_again_and_again(server, header, methods, said):
    root = uuid.uuid4().hex
    for act in (lambda store: store.write_bytes("a", b"1"), lambda store: store.make_dirs("x")):
        with (
            behind(server, without(header, methods.split())),
            pytest.raises(StorageError, match=f"ignores the header {said}"),
        ):
            act(server.store(root))
    assert server.store(root).list("") == []
    server.store(root).write_bytes("a", b"1")
