"""An object store as a program of its own: the contract, kills at each request, and a crawl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import product
from pathlib import Path
from statistics import median

import pytest
from pyarrow.dataset import dataset
from pyarrow.fs import S3FileSystem

from crawl_lib import stages
from crawl_lib.commoncrawl import make_index
from crawl_lib.config.model import DfsConfig
from crawl_lib.engine import Workplace, open_engine
from crawl_lib.errors import StorageRightsError
from crawl_lib.repair import fsck as check
from crawl_lib.storage import LocalStorage, open_storage, s3
from crawl_lib.storage.access import S3Credentials
from crawl_lib.storage.s3 import S3Storage
from crawl_lib.storage.s3_client import S3Client
from crawl_lib.storage.s3_files import PART_BYTES
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb, TruthOptions
from tests.cluster import s3a
from tests.cluster.spark import (
    DEFAULTS,
    all_stages,
    assert_same_bytes,
    give_defaults,
    in_scratch,
    keep_warm,
    never,
    random_crawl,
    with_spark,
)
from tests.cluster.test_crawl import MAX_REDIRECTS, WEB, check_truth
from tests.cluster.versitygw import VersityGw, why_not
from tests.contracts.contenders import contend
from tests.contracts.kills import KillsContract
from tests.contracts.storage import StorageContract
from tests.e2e.crawl import make_config, run_crawl, write_config
from tests.e2e.moved import SAME, copy_objects, export_digests, in_bucket, rows_of
from tests.s3 import BUCKET, CREDENTIALS, credential_variables, documented_rights
from tests.torture.rounds import begin_again
from tests.web.pywb import PYTHON

PAGES = 10_000
MOST_CPU = 1.3
STOPS = 27
"""So many requests has a rename of `contend`."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGw]:
    if missing := why_not():
        pytest.skip(f"the tests of an object store as a program cannot run: {missing}")
    with VersityGw(tmp_path_factory.mktemp("s3")) as running:
        yield running


class TestContract(StorageContract):
    @pytest.fixture
    def storage(self, gateway):
        return gateway.store()


class TestKills(KillsContract):
    @pytest.fixture
    def server(self, gateway):
        return gateway


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("waits", [False, True])
def test_of_two_tasks_one_wins_also_when_the_other_is_stopped_for_longer_than_a_take_over(
    gateway, waits
):
    """`KRAKE_CONTENDERS=1000` has that many pairs of them."""
    asked = int(os.environ.get("KRAKE_CONTENDERS", STOPS))
    won = contend(gateway, [number % STOPS for number in range(asked)], waits=waits)
    print(f"won: {won}")
    assert min(won.values()) > 0


def use_all(store: S3Storage) -> None:
    """Use all that a store can do."""
    store.write_bytes("x/.h/a", b"1")
    store.open_write("x/left").write(bytes(PART_BYTES))
    store.rename("x/.h", "x/t")
    store.rename("x/t/a", "x/t/b")
    assert store.read_bytes("x/t/b") == b"1"
    assert store.sweep() == ["x/left (an unfinished upload)"]
    store.delete("x")


def test_a_user_needs_each_right_that_the_docs_name_and_no_more(gateway, monkeypatch):
    monkeypatch.setattr(s3, "OLD_UPLOAD", timedelta(days=-1))
    user, rights = S3Credentials("krake", "other-secret"), documented_rights()
    gateway.add_user(user)
    root = S3Client(gateway.config(), CREDENTIALS)
    for missing in (None, *rights):
        prefix = f"without-{missing}".replace(":", "-")
        there = {"bucket": BUCKET, "objects": f"{BUCKET}/{prefix}/*"}
        statements = [
            {
                "Effect": "Allow",
                "Principal": user.key_id,
                "Action": right,
                "Resource": f"arn:aws:s3:::{there[on]}",
            }
            for right, on in rights.items()
            if right != missing
        ]
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        root.ask_once("cannot be given", "", "put_bucket_policy", Policy=policy)
        store = S3Storage(S3Client(gateway.config(prefix), user))
        if missing is None:
            use_all(store)
        else:
            with pytest.raises(
                StorageRightsError, match=r"no permission .*docs/storage\.md names the rights"
            ):
                use_all(store)
    root.ask_once("cannot be taken", "", "delete_bucket_policy")


@pytest.fixture
def let_in(monkeypatch) -> None:
    for name, value in credential_variables().items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("let_in")
def test_a_crawl_in_a_bucket_or_moved_there_is_that_on_a_disk(gateway, tmp_path):
    """The crawl of the test of HDFS. One is moved after two iterations, and goes on where its files were copied to."""
    done = {}
    with Serving(WEB) as serving:
        for name in ("disk", "bucket", "moved"):
            (tmp_path / name).mkdir()
            disk = make_config(
                tmp_path / name,
                nodes=2,
                fetch={"host_delay_s": 0.02, "max_redirects": MAX_REDIRECTS},
            )
            begin_again(serving)
            if name == "moved":
                run_crawl(disk, serving.seeds, 2, process=False)
                copy_objects(LocalStorage.open(Path(disk.dfs_primary)), gateway, name)
            config = disk if name == "disk" else in_bucket(disk, gateway, name)
            done[name] = run_crawl(config, serving.seeds)
    expected = rows_of(done["disk"], Path(done["disk"].config.dfs_primary))
    assert all(table.total() > 100 for table in expected.values())
    for name in ("bucket", "moved"):
        digests = export_digests(done[name])
        assert len(digests) == len(SAME)
        assert digests == export_digests(done["disk"])
        found = rows_of(done[name], gateway.files(name))
        assert not [found[table] - rows for table, rows in expected.items() if found[table] != rows]
        assert check(open_stores(done[name].config)).clean


@pytest.mark.usefixtures("let_in")
def test_a_crawl_that_is_moved_from_hdfs_goes_on(gateway, hdfs, tmp_path):
    (tmp_path / "crawl").mkdir()
    with Serving(WEB) as serving:
        fetch = {"host_delay_s": 0.02, "max_redirects": MAX_REDIRECTS}
        local = make_config(tmp_path / "crawl", nodes=2, fetch=fetch)
        before = replace(
            local, dfs_primary=f"{hdfs.address}/krake/moved", dfs=DfsConfig(wait_s=30.0)
        )
        run_crawl(before, serving.seeds, 2, process=False)
        copy_objects(open_storage(before), gateway, "from-hdfs")
        config = in_bucket(local, gateway, "from-hdfs")
        assert check(open_stores(config)).clean
        done = run_crawl(config, serving.seeds)
        truth = serving.truth(options=TruthOptions(max_redirects=MAX_REDIRECTS))
    check_truth(config, done, truth, tmp_path / "copied")
    assert check(open_stores(config)).clean


@pytest.mark.usefixtures("let_in")
def test_spark_reads_and_writes_s3a_and_leaves_the_same_bytes(
    gateway, config, maker, tmp_path, monkeypatch
):
    """Nothing is copied to this machine."""
    give_defaults(
        monkeypatch, tmp_path, DEFAULTS + s3a.defaults(gateway.address), java="-UsePerfData"
    )
    random_crawl(maker, 1)
    far = in_bucket(config, gateway, "for-spark")
    storage = open_storage(far)
    copy_objects(LocalStorage.open(maker.root), gateway, "for-spark")
    monkeypatch.setattr(S3Storage, "download", never)
    all_stages(storage, far, maker, "duckdb")
    on_spark = with_spark(far, dfs_url=f"s3a://{BUCKET}/for-spark")
    with open_engine(on_spark, Workplace(storage, tmp_path, "hidden", 1 << 30)) as running:
        keep_warm(running, monkeypatch)
        all_stages(storage, on_spark, maker, "spark")
    assert_same_bytes(storage, "duckdb", "spark")
    assert in_scratch(far) == []
    names = [one.path for one in storage._client.below("")]
    assert [name for name in names if "/." in name or "result-" in name] == []


ITERATION = """
import json, sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from crawl_lib import load_config, open_stores, stages

config = load_config(Path(sys.argv[1]))
stages.crawl_node(open_stores(config), run_id="run", iteration=1, node="node-0")
pages = stages.commit_iteration(open_stores(config), run_id="run", iteration=1)["pages"]

import psutil

for child in psutil.Process().children():  # the kernel adds what a child cost when it is waited for
    child.kill()
    child.wait()
usages = map(getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN))
print(json.dumps([pages, sum(usage.ru_utime + usage.ru_stime for usage in usages)]))
"""


@pytest.mark.usefixtures("let_in")
def test_a_large_iteration_takes_little_more_cpu_than_on_a_disk(gateway, tmp_path):
    """CPU of the processes of the node and the commit, medians of three."""
    taken: dict[str, list[float]] = {"disk": [], "bucket": []}
    with Serving(SynthWeb(seed=38, sites=84, pages_per_site=120, specials=False)) as serving:
        seeds = sorted(serving.truth().visits)[:PAGES]
        assert len(seeds) == PAGES
        for name, number in product(taken, range(3)):
            directory = tmp_path / f"{name}-{number}"
            directory.mkdir()
            disk = make_config(directory, nodes=1, fetch={"host_delay_s": 0.0, "time_limit_s": 600})
            config = disk if name == "disk" else in_bucket(disk, gateway, directory.name)
            stages.inject(open_stores(config), run_id="run", seeds="\n".join(seeds))
            command = [sys.executable, "-c", ITERATION, str(write_config(config, directory))]
            pages, cpu_s = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout
            )
            taken[name].append(cpu_s)
            assert pages == PAGES
    print(f"CPU in seconds: {taken}")
    assert median(taken["bucket"]) <= MOST_CPU * median(taken["disk"])


COUNTS = """
import sys
import duckdb
from duckdb_extension_httpfs import __file__ as package
from pathlib import Path

endpoint, key, secret, pattern = sys.argv[1:]
extension = next(Path(package).parent.rglob("httpfs.duckdb_extension"))
asked = duckdb.connect(config={"autoinstall_known_extensions": False})
asked.execute(f"load '{extension}'")
asked.execute(
    f"create secret (type s3, key_id '{key}', secret '{secret}', endpoint '{endpoint}', "
    "region 'us-east-1', url_style 'path', use_ssl false)"
)
for subset, rows in asked.sql(
    f"select subset, count(*) from read_parquet('{pattern}', hive_partitioning = true) group by all"
).fetchall():
    print(subset, rows)
"""


@pytest.mark.usefixtures("let_in")
def test_duckdb_with_httpfs_and_pyarrow_count_the_same_rows_of_the_index(gateway, tmp_path):
    with Serving(WEB) as serving:
        config = in_bucket(
            make_config(tmp_path, nodes=2, fetch={"host_delay_s": 0.02}), gateway, "index"
        )
        run_crawl(config, serving.seeds, 2, process=False)
    made = make_index(open_stores(config), label="all")
    endpoint = gateway.address.removeprefix("http://")
    access = {
        "access_key": CREDENTIALS.key_id,
        "secret_key": CREDENTIALS.secret,
        "region": "us-east-1",
    }
    bucket = S3FileSystem(endpoint_override=endpoint, scheme="http", **access)
    found = dataset(
        f"{BUCKET}/index/cc-index",
        filesystem=bucket,
        partitioning="hive",
        exclude_invalid_files=True,
    )
    counted = Counter(found.to_table(["subset"])["subset"].to_pylist())
    given = (
        endpoint,
        CREDENTIALS.key_id,
        CREDENTIALS.secret,
        f"s3://{BUCKET}/index/cc-index/*/*/*.parquet",
    )
    asked = subprocess.run(
        [PYTHON, "-c", COUNTS, *given], capture_output=True, text=True, timeout=120
    )
    assert asked.returncode == 0, asked.stderr
    by_duckdb = {subset: int(rows) for subset, rows in map(str.split, asked.stdout.splitlines())}
    assert by_duckdb == counted == {subset: rows for subset, rows in made.counts.items() if rows}
    assert by_duckdb["warc"] > 50
