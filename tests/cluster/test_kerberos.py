"""A secured HDFS: every request by HTTPS, with a ticket of a real KDC. Cookies run out every few seconds here."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import HTTPServer
from pathlib import Path
from threading import Event

import pytest
from krake_airflow.settings import PROJECT

from crawl_lib.config.model import DfsConfig
from crawl_lib.engine import Workplace, open_engine
from crawl_lib.engine.java import check_kerberos
from crawl_lib.errors import ConfigError, StorageAccessError, StorageError
from crawl_lib.frontier import NodeDirectory
from crawl_lib.storage import LocalStorage, open_storage
from crawl_lib.storage.access import parse_address
from crawl_lib.storage.hdfs import HdfsStorage
from crawl_lib.storage.session import Negotiate
from crawl_lib.storage.webhdfs import Datanodes, WebHdfs
from demo import Serving
from tests.cluster.kerberos import Authority, Kdc, SecureHdfs, SecureHttpFs, why_not
from tests.cluster.processes import wait_until
from tests.cluster.spark import (
    all_stages,
    assert_same_bytes,
    keep_warm,
    never,
    one_page,
    spark_url,
    with_spark,
)
from tests.cluster.test_crawl import check_truth, copy_of
from tests.contracts.storage import StorageContract
from tests.dags.crawls import ITERATIONS, WEB, small_config
from tests.e2e.crawl import Result, make_config, write_config
from tests.export.crawls import CrawlMaker
from tests.serving import Answering, running

COOKIE_S = 2
RUN_LIMIT_S = 1200
LIMIT_S = 300  # for what comes with time on a loaded machine
AUTHENTICATION, PRINCIPAL = (
    r"hadoop\.security\.authentication",
    r"dfs\.namenode\.kerberos\.principal",
)
TO_DO = r"get a ticket by kinit, or name in KRB5CCNAME .*, or in KRB5_CLIENT_KTNAME a keytab"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    """A realm, which the Kerberos library of this process knows."""
    if missing := why_not():
        pytest.skip(f"Kerberos is not tested: {missing}")
    with Kdc(tmp_path_factory.mktemp("kdc")) as running, pytest.MonkeyPatch.context() as patched:
        for name, value in running.environment.items():
            patched.setenv(name, value)
        patched.delenv("KRB5_CLIENT_KTNAME", raising=False)
        yield running


@pytest.fixture(scope="module")
def secured(jars: None, kdc: Kdc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureHdfs]:
    """A namenode and a datanode."""
    folder = tmp_path_factory.mktemp("secured")
    with SecureHdfs(folder / "hdfs", kdc, Authority(folder / "ca"), cookie_s=COOKIE_S) as cluster:
        yield cluster


@pytest.fixture
def cache(kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tickets are looked for; there is none."""
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")
    return tmp_path / "tickets"


@pytest.fixture
def ticket(kdc: Kdc, secured: SecureHdfs, cache: Path) -> Path:
    """The user `krake` has a ticket."""
    kdc.ticket("krake", cache)
    return cache


@pytest.fixture
def config(secured: SecureHdfs) -> DfsConfig:
    """What an operator writes into the section `dfs`."""
    ca_file = str(secured.authority.ca_file)
    return DfsConfig(
        security="kerberos", ca_file=ca_file, connect_timeout_s=20.0, timeout_s=60.0, wait_s=240.0
    )


@pytest.fixture
def address(secured: SecureHdfs) -> str:
    """An empty root path of its own."""
    return f"{secured.address}/krake/{uuid.uuid4().hex}"


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts that were shown a ticket."""
    shown: list[str] = []
    exchanged = Negotiate._exchanged
    monkeypatch.setattr(
        Negotiate,
        "_exchanged",
        lambda auth, request, host, send: (
            shown.append(host) or exchanged(auth, request, host, send)
        ),
    )
    return shown


class TestSecuredHdfs(StorageContract):
    @pytest.fixture
    def storage(self, ticket, address, config):
        return HdfsStorage.open(address, config)


@pytest.fixture(scope="module")
def gateway(
    secured: SecureHdfs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureHttpFs]:
    with SecureHttpFs(secured, tmp_path_factory.mktemp("gateway") / "run") as running:
        yield running


class TestSecuredHttpFs(StorageContract):
    """The gateway asks for the ticket; what it writes is the ticket's user's."""

    @pytest.fixture
    def storage(self, gateway, ticket, config):
        return HdfsStorage.open(
            f"{gateway.url}/krake/{uuid.uuid4().hex}", dataclasses.replace(config, ca_file=None)
        )

    def test_files_are_those_of_the_tickets_user(self, storage):
        storage.write_bytes("f", b"1")
        assert storage._hdfs.call("cannot be looked at", "GETFILESTATUS", "f")["owner"] == "krake"

    def test_without_a_ticket_it_lets_nobody_in(self, gateway, cache, config):
        with pytest.raises(StorageAccessError, match=TO_DO):
            HdfsStorage.open(f"{gateway.url}/krake/x", config)
        with pytest.raises(StorageAccessError, match=r"set dfs\.security: kerberos"):
            HdfsStorage.open(f"{gateway.url}/krake/x", DfsConfig())


def test_a_ticket_is_shown_once_and_again_when_the_cookie_has_run_out(
    ticket, address, config, exchanges
):
    storage = HdfsStorage.open(address, config)
    asked = 0

    def asks() -> bool:
        nonlocal asked
        asked += 1
        return storage.stat("") is not None and len(exchanges) >= 3

    wait_until("two cookies have run out", asks, LIMIT_S, pause_s=0.0)
    assert asked > 3 * len(exchanges)  # most requests needed no ticket


def test_what_a_request_costs(ticket, address, config, exchanges):
    """Figures for the docstring of `crawl_lib.storage.session`."""
    storage = HdfsStorage.open(address, config)
    storage.write_bytes("f", b"1" * 5000)
    cookies = storage._hdfs.session.cookies
    for what, without in (("cookie", False), ("exchange", True)):
        begun, used = time.monotonic(), time.process_time()
        for _ in range(50):
            if without:
                cookies.clear()
            assert storage.stat("f").size_bytes == 5000
        seconds, cpu = time.monotonic() - begun, time.process_time() - used
        print(f"stat, {what}: {seconds * 20:.1f} ms, {cpu * 20:.2f} ms CPU")
    assert len(exchanges) >= 50


@contextmanager
def renewed(kdc: Kdc, cache: Path) -> Iterator[None]:
    """A ticket that is good for 8 seconds, and somebody who renews it every two, into a cache that is whole always."""
    fresh, ended = cache.with_suffix(".fresh"), Event()
    kdc.ticket("krake", fresh, "-l", "8s", "-r", "1h")

    def renew() -> None:
        while True:
            shutil.copy(fresh, cache.with_suffix(".new"))
            cache.with_suffix(".new").rename(cache)
            if ended.wait(2):
                return
            try:
                kdc.run("kinit", "-R", "-c", f"FILE:{fresh}")
            except AssertionError:  # this machine took the ticket's whole life for it
                kdc.ticket("krake", fresh, "-l", "8s", "-r", "1h")

    with ThreadPoolExecutor(1) as pool:
        renewing = pool.submit(renew)
        try:
            yield
        finally:
            ended.set()
            renewing.result()


@pytest.mark.timeout(RUN_LIMIT_S)
def test_a_run_of_the_dag(secured, cache, kdc, config, airflow_database, tmp_path, monkeypatch):
    """Two nodes, all tasks, while tickets and cookies run out. Airflow's connection says where HDFS is, and whom to
    trust; the config only that it asks for Kerberos, and the root path."""
    extra = {"use_ssl": True, "verify": str(secured.authority.ca_file)}
    connection = {
        "conn_type": "webhdfs",
        "host": "127.0.0.1",
        "port": secured.http["nn1"],
        "extra": extra,
    }
    monkeypatch.setenv("AIRFLOW_CONN_KRAKE_DFS", json.dumps(connection))
    monkeypatch.setenv("KRAKE_AIRFLOW_HOME", str(airflow_database(tmp_path / "home")))
    monkeypatch.setenv("PYTHONPATH", f"{PROJECT / 'plugins'}{os.pathsep}{PROJECT}")
    local, _ = small_config(tmp_path)
    dfs = dataclasses.replace(config, ca_file=None)
    far = dataclasses.replace(local, dfs_primary="https://namenode.invalid:9871/krake/dag", dfs=dfs)
    path = write_config(far, tmp_path)
    with Serving(WEB) as serving:
        arguments = ["--seeds", " ".join(serving.seeds), "--iterations", str(ITERATIONS)]
        command = [
            sys.executable,
            "-m",
            "krake_airflow",
            "crawl",
            "--config",
            str(path),
            *arguments,
        ]
        begun = time.monotonic()
        with renewed(kdc, cache):
            done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT_S)
        assert done.returncode == 0, done.stdout + done.stderr
        assert time.monotonic() - begun > 8, done.stdout + done.stderr  # so a ticket has ended
        truth = serving.truth()
    kdc.ticket("krake", cache)
    here = dataclasses.replace(far, dfs_primary=f"{secured.address}/krake/dag", dfs=config)
    entries = [entry.name for entry in open_storage(here).list(here.export.directory)]
    [export] = [name for name in entries if name != NodeDirectory.crawl]
    check_truth(here, Result(here, export=export), truth, tmp_path / "copied")


@pytest.mark.timeout(RUN_LIMIT_S)
@pytest.mark.usefixtures("many_tasks")
def test_spark_reads_a_secured_hdfs(ticket, secured, address, config, tmp_path, monkeypatch):
    """And writes there: by the same ticket, and Hadoop's configuration. Where that is missing it is told what to do."""
    far = dataclasses.replace(make_config(tmp_path, nodes=1), dfs_primary=address, dfs=config)
    (tmp_path / "local").mkdir()
    maker = CrawlMaker(tmp_path / "local")
    one_page(maker)
    storage = open_storage(far)
    copy_of(LocalStorage.open(maker.root), "crawl", storage)
    all_stages(storage, far, maker, "duckdb")
    on_spark = with_spark(far, dfs_url=spark_url(secured, far))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(secured.directory / "conf-nn1"))
    monkeypatch.setattr(HdfsStorage, "download", never)
    with (
        open_engine(on_spark, Workplace(storage, tmp_path, ".engine", 1 << 30)) as running,
        monkeypatch.context() as patched,
    ):
        keep_warm(running, patched)
        all_stages(storage, on_spark, maker, "spark")
        assert_same_bytes(storage, "duckdb", "spark")
        jvm = running._session.sparkContext._jvm
        jvm.org.apache.hadoop.security.UserGroupInformation.setConfiguration(
            jvm.org.apache.hadoop.conf.Configuration()
        )
        check_kerberos(jvm, address)
        jvm.org.apache.spark.deploy.SparkHadoopUtil.get().conf().unset(
            "dfs.namenode.kerberos.principal"
        )
        without = jvm.org.apache.hadoop.conf.Configuration(False)
        jvm.org.apache.hadoop.security.UserGroupInformation.setConfiguration(without)
        told = rf"spark\.dfs_url: https://127.*{AUTHENTICATION} and no {PRINCIPAL}: set HADOOP_CONF_DIR to the folder"
        with pytest.raises(ConfigError, match=told):
            check_kerberos(jvm, address)


def tokens(secured: SecureHdfs) -> int:
    """How many the namenode keeps."""
    query = "Hadoop:service=NameNode,name=FSNamesystemState"
    [state] = secured.session.get(f"{secured.url('nn1')}/jmx?qry={query}", timeout=60).json()[
        "beans"
    ]
    return int(state["CurrentTokensCount"])


def test_a_session_has_one_token_for_all_its_files(ticket, secured, address, config):
    """A namenode would make one for each and keep it for a day; a token that is taken no more is replaced."""
    storage = HdfsStorage.open(address, config)
    before = tokens(secured)
    for number in range(5):
        storage.write_bytes(f"f{number}", b"1")
        assert storage.read_bytes(f"f{number}") == b"1"
    assert tokens(secured) == before + 1
    token = storage._hdfs.token()["delegation"]
    storage._hdfs._token = {
        "delegation": token[:20] + ("A" if token[20] != "A" else "B") + token[21:]
    }
    assert storage.read_bytes("f0") == b"1"
    assert storage._hdfs.token()["delegation"] != token


def test_many_files_at_once_share_no_exchange(ticket, address, config):
    """Each has a thread of its own; the cookies of all run out meanwhile."""
    storage = HdfsStorage.open(address, config)
    for round_number in range(3):
        storage._hdfs.session.cookies.clear()
        files = [storage.open_write(f"{round_number}/{number}") for number in range(8)]
        for number, file in enumerate(files):
            file.write(bytes([number]) * 100_000)
        for file in files:
            file.close()
        for number in range(8):
            assert storage.read_bytes(f"{round_number}/{number}") == bytes([number]) * 100_000


def test_no_ticket_is_told_at_once(secured, cache, address, config):
    with pytest.raises(
        StorageAccessError, match=rf"127.0.0.1.*No Kerberos credentials available.*{cache}.*{TO_DO}"
    ):
        HdfsStorage.open(address, dataclasses.replace(config, wait_s=3600.0))


def test_a_keytab_needs_no_kinit(secured, cache, address, config, kdc, monkeypatch):
    """The library gets the ticket by itself, and will get the next one."""
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", f"FILE:{kdc.directory}/krake.keytab")
    storage = HdfsStorage.open(address, config)
    storage.write_bytes("f", b"1")
    assert storage.read_bytes("f") == b"1"
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", f"FILE:{kdc.directory}/gone.keytab")
    cache.unlink()
    with pytest.raises(StorageAccessError, match=TO_DO):
        HdfsStorage.open(address, config)


RENEW_ONCE = """
from airflow.configuration import conf
from airflow.security import kerberos
kerberos.run(None, conf.get("kerberos", "keytab"), kerberos.KerberosMode.ONE_TIME)
"""


def test_airflow_renews_the_ticket(secured, cache, address, config, kdc, tmp_path):
    """As docs/cluster.md says: `airflow kerberos` keeps a cache from a keytab. Here without Airflow's database."""
    options = {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__SECURITY": "kerberos",
        "AIRFLOW__KERBEROS__PRINCIPAL": f"krake@{kdc.realm}",
        "AIRFLOW__KERBEROS__KEYTAB": str(kdc.directory / "krake.keytab"),
        "AIRFLOW__KERBEROS__CCACHE": str(cache),
        "AIRFLOW__KERBEROS__INCLUDE_IP": "False",  # else a ticket is good from the machine's own addresses only
    }
    done = subprocess.run(
        [sys.executable, "-c", RENEW_ONCE],
        env=os.environ | options,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    storage = HdfsStorage.open(address, config)
    storage.write_bytes("f", b"1")
    assert storage.read_bytes("f") == b"1"


class Impatient:
    """A clock that only waiting moves; `waits` is called instead of each wait."""

    def __init__(self, waits: Callable[[], object]) -> None:
        self.now_s, self._waits = 0.0, waits

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self._waits()

    def clock(self) -> float:
        return self.now_s


def storage_that_waits(address: str, config: DfsConfig, waits: Callable[[], object]) -> HdfsStorage:
    clock = Impatient(waits)
    return HdfsStorage(
        WebHdfs(parse_address(address), config, sleep=clock.sleep, clock=clock.clock)
    )


def test_a_ticket_that_ends_in_the_middle_is_waited_for(secured, kdc, ticket, address, config):
    """It is renewed late; the request goes on with the new one."""
    renewed = []

    def renew() -> None:
        renewed.append(1)
        kdc.ticket("krake", ticket)

    storage = storage_that_waits(address, config, renew)
    storage.make_dirs("d")
    kdc.ticket("krake", ticket, "-l", "1s")
    wait_until(
        "the ticket has ended",
        lambda: storage.stat("d") is not None and bool(renewed),
        LIMIT_S,
    )
    assert len(renewed) == 1
    storage.write_bytes("d/f", b"1")
    assert storage.read_bytes("d/f") == b"1"


def test_a_ticket_that_has_ended_is_a_clear_error_after_the_wait(
    secured, kdc, ticket, address, config
):
    waits = []
    storage = storage_that_waits(address, config, lambda: waits.append(1))
    storage.make_dirs("d")
    kdc.ticket("krake", ticket, "-l", "1s")
    with pytest.raises(StorageAccessError, match=rf"(?i)cannot be looked at: .*expired.*{TO_DO}"):
        wait_until("the ticket has ended", lambda: storage.stat("d") is None, LIMIT_S)
    assert len(waits) > 5


def test_a_kdc_that_is_down_is_waited_for(secured, kdc, ticket, address, config):
    """There is a ticket, but none for the namenode yet: to ask means to wait for the KDC."""
    kdc.stop()
    waits = []

    def start_at_third() -> None:
        waits.append(1)
        if len(waits) == 3:
            kdc.start()

    try:
        assert storage_that_waits(address, config, start_at_third).stat("") is None
        assert len(waits) >= 3  # more, where its first answer is lost
    finally:
        if len(waits) < 3:
            kdc.start()


def test_a_ticket_of_another_realm_is_told(
    secured, address, config, cache, kdc, tmp_path, monkeypatch
):
    with Kdc(tmp_path / "other", realm="OTHER.TEST") as other:
        for name, value in other.environment.items():
            monkeypatch.setenv(name, value)
        other.keytab("krake")
        other.ticket("krake", cache)
        with pytest.raises(
            StorageAccessError, match=r"HTTP@127.0.0.1: Server .*not found in Kerberos database"
        ):
            HdfsStorage.open(address, config)


def test_a_ticket_of_a_user_without_rights_is_told(secured, address, config, cache, kdc):
    kdc.keytab("stranger")
    kdc.ticket("stranger", cache)
    with pytest.raises(
        StorageAccessError,
        match=r"no permission: .*user=stranger.*let the ticket's user own /krake/",
    ):
        HdfsStorage.open(address, config)


def test_who_shows_no_ticket_is_told_of_kerberos(ticket, address, config):
    with pytest.raises(
        StorageAccessError, match=rf"127.0.0.1.*set dfs.security: kerberos and {TO_DO}"
    ):
        HdfsStorage.open(address, dataclasses.replace(config, security="simple"))


@pytest.mark.parametrize("security", ["simple", "kerberos"])
def test_a_certificate_of_an_unknown_authority_is_refused(
    ticket, secured, address, config, tmp_path, security
):
    strangers = Authority(tmp_path / "ca", "somebody else")
    config = dataclasses.replace(
        config, security=security, ca_file=str(strangers.ca_file), wait_s=3600.0
    )
    server = f"127.0.0.1:{secured.http['nn1']}"
    with pytest.raises(
        StorageAccessError, match=rf"{server}: certificate: .*verify failed.*; dfs.ca_file names"
    ):
        HdfsStorage.open(address, config)


def test_a_certificate_for_another_name_is_refused(ticket, secured, address, config):
    with pytest.raises(
        StorageAccessError, match=r"localhost:\d+: certificate: .*mismatch.*dfs.ca_file"
    ):
        HdfsStorage.open(address.replace("127.0.0.1", "localhost"), config)


def test_the_token_for_a_datanode_stays_out_of_errors(ticket, secured, address, config):
    """It lets its holder in for a day."""
    storage = HdfsStorage.open(address, dataclasses.replace(config, wait_s=0.0))
    storage.write_bytes("f", b"1")
    location = storage._hdfs.ask("OPEN", "f", noredirect="true")
    token = location.partition("delegation=")[2].partition("&")[0]
    assert len(token) > 50
    secured.kill("dn")
    try:
        with pytest.raises(StorageError) as caught:
            storage._hdfs.persist(
                "cannot be read", "f", lambda: Datanodes(storage._hdfs).exchange(location)
            )
        assert token not in "".join(traceback.format_exception(caught.value))
    finally:
        secured.start("dn")
        secured.wait_ready()


def test_a_fail_over_between_two_requests(jars, kdc, cache, tmp_path):
    """The other namenode takes no cookie of the first, so it is shown the ticket; the token is good for both."""
    folder = tmp_path / "pair"
    with SecureHdfs(folder / "hdfs", kdc, Authority(folder / "ca"), namenodes=2) as pair:
        kdc.ticket("krake", cache)
        config = DfsConfig(security="kerberos", ca_file=str(pair.authority.ca_file), wait_s=LIMIT_S)
        storage = HdfsStorage.open(f"{pair.address}/krake", config)
        storage.write_bytes("before", b"1")
        token = storage._hdfs.token()
        pair.fail_over()
        storage.write_bytes("after", b"2")
        assert [storage.read_bytes(path) for path in ("before", "after")] == [b"1", b"2"]
        assert storage._hdfs.token() is token


class _Impostor(Answering):
    """A server that asks for a ticket and cannot read it."""

    def do_GET(self) -> None:
        body = b'{"FileStatus":{"type":"DIRECTORY","length":0,"pathSuffix":""}}'
        if self.headers["Authorization"] is None:
            self.answer(401, body, {"WWW-Authenticate": "Negotiate"})
        else:
            self.answer(200, body)


def test_a_server_that_cannot_prove_itself_is_not_believed(ticket):
    """By plain HTTP nothing else says who it is."""
    with running(HTTPServer(("127.0.0.1", 0), _Impostor)) as server:
        told = rf"127.0.0.1:{server.server_port}: Kerberos for HTTP@127.0.0.1"
        with pytest.raises(StorageAccessError, match=told):
            HdfsStorage.open(
                f"http://127.0.0.1:{server.server_port}",
                DfsConfig(security="kerberos", wait_s=0.0),
            )
