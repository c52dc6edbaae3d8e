"""The store in a bucket: its contract, its requests, and what is left by a kill at each of them."""

from __future__ import annotations

import ast
import logging
import random
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest

from crawl_lib.errors import (
    ConfigError,
    StoppedError,
    StorageAccessError,
    StorageError,
    TargetExistsError,
)
from crawl_lib.storage import Entry, open_storage, s3, s3_files, shown_address
from crawl_lib.storage.access import S3Credentials, parse_s3_address
from crawl_lib.storage.s3 import S3Storage
from crawl_lib.storage.s3_claims import Times
from crawl_lib.storage.s3_client import S3Client
from crawl_lib.storage.s3_files import GROWTH_BYTES, PART_BYTES
from crawl_lib.stores import Secrets
from tests.contracts.contenders import contend
from tests.contracts.kills import (
    FILES,
    KilledError,
    KillsContract,
    filled,
    killing,
    shown,
    shown_names,
)
from tests.contracts.storage import StorageContract
from tests.s3 import CREDENTIALS, S3Server, behind, documented_rights, s3_server, without


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


class TestContract(StorageContract):
    @pytest.fixture
    def storage(self, server):
        return server.store()


class TestKills(KillsContract):
    """`make test-cluster` kills at each request."""

    step = 6

    @pytest.fixture
    def server(self, server):
        return server


def test_a_holder_that_could_not_renew_gives_up(server):
    now = [0.0]

    def hook(operation: str, key: str) -> None:
        if operation == "upload_part_copy":
            now[0] += 301

    store = server.store("late", hook=hook, clock=lambda: now[0])
    filled(store, "x/.h")
    with pytest.raises(StorageError, match="could not be renewed in time; run the task again"):
        store.rename("x/.h", "x/t")
    assert shown(server.store("late"), "x/t") is None


def test_a_claim_is_renewed_each_minute(server):
    now, renewed = [0.0], []

    def hook(operation: str, key: str) -> None:
        now[0] += 40
        if operation == "put_object" and key.endswith(".claim.t"):
            renewed.append(now[0])

    store = server.store("slow", hook=hook, clock=lambda: now[0])
    filled(store, "x/.h")
    renewed.clear()
    store.rename("x/.h", "x/t")
    assert len(renewed) > 4
    assert shown(server.store("slow"), "x/t") == FILES


@pytest.mark.parametrize("kind", ["500 Internal Server Error", "503 Slow Down", "nothing", "lost"])
def test_requests_that_fail_change_nothing(server, kind):
    """One request in three here; where the answer is lost, the request was done."""
    root = uuid.uuid4().hex
    server.fault = lambda number: kind if number % 3 == 0 else None
    try:
        store = server.store(root, sleep=lambda seconds: None)
        filled(store, "x/.h")
        store.rename("x/.h", "x/t")
        with store.open_write("x/large") as file:
            file.write(bytes(PART_BYTES + 5))
        filled(store, "x/u")
        assert store.delete("x/u")
        store.rename("x/t/a", "x/moved")
    finally:
        server.fault = lambda number: None
    assert shown(server.store(root), "x/t") == {
        name: data for name, data in FILES.items() if name != "a"
    }
    assert shown_names(server.store(root), "x") == ["large", "moved", "t"]
    assert server.store(root).read_bytes("x/large") == bytes(PART_BYTES + 5)


def test_a_server_without_conditional_writes_is_refused(server):
    with (
        behind(server, without("If-None-Match")),
        pytest.raises(StorageError, match="the header If-None-Match"),
    ):
        server.store("plain").write_bytes("a", b"1")
    assert server.store("plain").list("") == []


def test_a_large_file_is_made_whole_or_not_at_all(server):
    root = uuid.uuid4().hex
    first, second = server.store(root), server.store(root)
    file, late = first.open_write("f"), second.open_write("f")
    for one in (file, late):
        one.write(bytes(PART_BYTES) + b"end")
    assert not first.exists("f")
    file.close()
    with pytest.raises(TargetExistsError):
        late.close()
    with first.open_read("f", PART_BYTES) as read:
        assert read.read() == b"end"
    assert list(first._client.uploads("")) == []


def test_parts_grow_so_that_a_file_may_have_five_tebibytes():
    assert sum(PART_BYTES + number * GROWTH_BYTES for number in range(10_000)) >= 5 << 40


def test_large_objects_are_copied_in_parts(server, monkeypatch):
    monkeypatch.setattr(s3_files, "COPY_PART_BYTES", 5 << 20)
    store, data = server.store(), random.Random(1).randbytes((11 << 20) + 1)
    store.write_bytes("d/.f", data)
    store.rename("d/.f", "d/f")
    assert store.read_bytes("d/f") == data


def test_a_sweep_ends_old_uploads_and_deletions_that_broke_off(server, monkeypatch):
    root = uuid.uuid4().hex
    filled(server.store(root), "x/h")
    server.store(root).open_write("x/f").write(bytes(PART_BYTES))
    with suppress(KilledError):
        killing(server, root, 0, "delete_objects").delete("x/h")
    monkeypatch.setattr(s3, "OLD_UPLOAD", timedelta(days=36_500))  # moto says 2010 of each
    assert server.store(root).sweep() == []
    monkeypatch.setattr(s3, "OLD_UPLOAD", timedelta(0))
    store = server.store(root, Times(takeover_s=-1.0))
    left = ["x/f (an unfinished upload)", "x/h (an unfinished deletion)"]
    assert store.sweep(dry_run=True) == store.sweep() == left
    assert store.sweep() == []
    assert [one.path for one in store._client.below("")] == [".probe", "x/"]


def test_a_list_asks_for_a_claim_that_is_younger_than_what_is_remembered(server):
    """Another process deletes a folder, and is killed while it renames another folder to that name."""
    root = uuid.uuid4().hex
    reader = server.store(root)
    filled(reader, "x/t")
    assert shown(reader, "x/t") == FILES
    server.store(root).delete("x/t")
    filled(server.store(root), "x/.h")
    with pytest.raises(KilledError):
        killing(server, root, 1, only="complete_multipart_upload").rename("x/.h", "x/t")
    assert shown_names(reader, "x") == [".h"]
    assert shown(reader, "x/t") is None
    server.store(root).rename("x/.h", "x/t")
    assert shown(reader, "x/t") == FILES


def test_a_file_that_is_younger_than_what_is_remembered_is_read(server):
    root = uuid.uuid4().hex
    reader = server.store(root)
    reader.make_dirs("x")
    assert reader.list("x") == []
    server.store(root).write_bytes("x/f", b"1")
    for length in (0, 1):
        with reader.open_read("x/f", 0, length) as file:
            assert file.read() == b"1"[:length]


def test_files_that_were_copied_without_folders_are_read(server):
    """As `aws s3 sync` copies a directory."""
    store = server.store()
    store._client.create("crawl/0001/n1/pages", b"1")
    assert store.list("crawl") == [Entry("0001", True, 0)]
    store.write_bytes("crawl/0001/n2/pages", b"2")
    assert shown_names(store, "crawl/0001") == ["n1", "n2"]


@pytest.mark.parametrize(
    "text",
    [
        "s3://",
        "s3://b",
        "s3://UPPER/x",
        "s3://key:secret@bucket/x",
        "s3://bucket/a//b",
        "s3://bucket/../x",
    ],
)
def test_wrong_addresses(text):
    with pytest.raises(ConfigError, match="dfs_primary: ") as caught:
        parse_s3_address(text)
    assert "secret" not in str(caught.value)


def test_addresses():
    assert parse_s3_address("s3://bucket") == ("bucket", "")
    assert parse_s3_address("s3://my.bucket/data/krake/") == ("my.bucket", "data/krake/")


def test_what_people_are_shown_has_no_credentials_and_no_last_slash(server):
    config = replace(server.config(), dfs_primary="s3://bucket/data/")
    assert shown_address(config) == "s3://bucket/data"
    with pytest.raises(ConfigError) as caught:
        shown_address(replace(config, dfs_primary="s3://key:secret@bucket/x"))
    assert "secret" not in str(caught.value)


def test_credentials_are_never_shown(server, monkeypatch):
    assert "secret" not in repr(CREDENTIALS) + repr(Secrets(s3=CREDENTIALS))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nonexistent")
    with pytest.raises(StorageAccessError, match="no credentials: set AWS_ACCESS_KEY_ID"):
        open_storage(server.config()).list("")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    assert open_storage(server.config()).list("") == []


def test_no_line_of_a_log_has_credentials(server, caplog):
    """Also where a task logs all that libraries say."""
    caplog.set_level(logging.DEBUG)
    credentials = S3Credentials("id-of-a-key", "very-secret", "token-of-a-session")
    store = S3Storage(S3Client(server.config(), credentials))
    store.write_bytes("a", b"1")
    assert store.read_bytes("a") == b"1"
    assert not [word for word in credentials.words().values() if str(word) in caplog.text]


def test_a_missing_bucket_is_named(server):
    config = replace(server.config(), dfs_primary="s3://other-bucket/x")
    with pytest.raises(StorageError, match="there is no bucket other-bucket; create it"):
        open_storage(config, credentials=CREDENTIALS).list("")


def test_a_store_that_is_to_stop_waits_no_longer(server):
    stop = Event()
    stop.set()
    server.fault = lambda number: "503 Slow Down"
    try:
        with pytest.raises(StoppedError):
            server.store(stop=stop).list("")
    finally:
        server.fault = lambda number: None


def test_without_its_package_the_store_says_what_to_install(server, monkeypatch):
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(ConfigError, match="needs the extra s3"):
        open_storage(server.config(), credentials=CREDENTIALS)


RIGHTS = {
    "abort_multipart_upload": {"s3:AbortMultipartUpload"},
    "complete_multipart_upload": {"s3:PutObject"},
    "create_multipart_upload": {"s3:PutObject"},
    "delete_object": {"s3:DeleteObject", "s3:GetObject"},
    "delete_objects": {"s3:DeleteObject"},
    "get_object": {"s3:GetObject"},
    "head_object": {"s3:GetObject"},
    "list_multipart_uploads": {"s3:ListBucketMultipartUploads"},
    "list_objects_v2": {"s3:ListBucket"},
    "put_object": {"s3:PutObject", "s3:GetObject"},
    "upload_part": {"s3:PutObject"},
    "upload_part_copy": {"s3:PutObject", "s3:GetObject"},
}
"""What AWS asks for each request: https://docs.aws.amazon.com/AmazonS3/latest/API/. A condition on an ETag needs
s3:GetObject."""


def test_the_docs_name_the_rights_of_all_requests(server):
    """The cluster's tests try them on a server."""
    texts = [path.read_text() for path in Path(s3.__file__).parent.glob("s3*.py")]
    words = {
        node.value
        for text in texts
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant)
    }
    client = server.store()._client._client
    requests = {
        word
        for word in words
        if isinstance(word, str) and word in client.meta.method_to_api_mapping
    }
    assert requests == set(RIGHTS)
    assert set(documented_rights()) == set.union(*RIGHTS.values())


def test_krake_is_imported_without_the_client_of_s3():
    """The package is an extra: only a store of this kind loads it."""
    code = "import sys; sys.modules['botocore'] = None; import crawl_lib.cli, crawl_lib.stages, crawl_lib.storage"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_of_two_tasks_one_wins_also_when_the_other_is_stopped_for_longer_than_a_take_over(server):
    """`make test-cluster` has more of them, with stops before each request."""
    won = contend(server, range(2, 27, 3))
    assert won["b"] > won["a"] > 0
