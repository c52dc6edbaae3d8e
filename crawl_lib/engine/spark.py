"""Spark for the batch queries: tables read in parallel, sorted by ranges of the key in many tasks.

Spark answers an `order by` with ranges: each task sorts a range, and writes the range as a part; the numbers of parts
are in order. A stream reads the parts one after the other and counts on, so no single task sorts or numbers everything.
"""

import os
import re
import subprocess
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from crawl_lib.config import Config
from crawl_lib.engine.engine import Engine, Workplace, in_batches, patiently, sql_text
from crawl_lib.engine.java import check_kerberos, is_secured, java_options
from crawl_lib.errors import ConfigError, LockedError, PathNotFoundError, StorageError
from crawl_lib.storage import LocalStorage, Storage

_T = TypeVar("_T")
LEAST_BYTES = 512 << 20
"""Spark needs at least this memory to start."""
PART_BYTES = 32 << 20
"""A row group of a part: the memory of a read."""
STOP_S = 30.0
LOG4J = """rootLogger.level = error
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = Spark: %p %c{1}: %m%n
"""
GLOB = re.compile(r"([*?\[\]{}\\])")


class Spark(Engine):
    """One Spark session with a Java process of its own; made by `open_spark`."""

    def __init__(self, session: SparkSession, room: Workplace, dfs_url: str | None) -> None:
        self._session, self._room = session, room
        self._url = None if dfs_url is None else dfs_url.rstrip("/")
        self._results, self._dead, self._has_shared = 0, False, False
        self._thread = ThreadPoolExecutor(
            1
        )  # one for all jobs, since each has a thread and a connection in Java

    def tables(self, name: str, paths: Sequence[str | None], schema: pa.Schema) -> None:
        columns = schema.append(pa.field("segment", pa.int32())).empty_table()
        there = {number: path for number, path in enumerate(paths) if path is not None}
        if not there:
            self.values(name, columns)
            return
        self._do(lambda: self._make_table(name, there, columns))

    def _make_table(self, name: str, paths: Mapping[int, str], columns: pa.Table) -> None:
        places = {
            number: self._place(path, f"{name}-{number}.parquet") for number, path in paths.items()
        }
        frame = self._read([*places.values()], mergeSchema="true")
        numbers = {_path_of(place): number for number, place in places.items()}
        uris = frame.inputFiles()
        given = [numbers.get(unquote(_path_of(uri))) for uri in uris]
        if sorted(number for number in given if number is not None) != [*paths]:
            raise StorageError(
                f"Spark: lists other files than the {len(paths)} it was asked to read as {name}"
            )
        addresses = [
            re.sub("^file:///", "file:/", uri) for uri in uris
        ]  # as `_metadata.file_path` has them
        files = self._given(
            pa.table({"krake_file": addresses, "segment": pa.array(given, pa.int32())})
        )
        named = frame.select("*", sql.col("_metadata.file_path").alias("krake_file"))
        joined = named.join(sql.broadcast(files), "krake_file").drop("krake_file")
        self._given(columns).unionByName(joined, allowMissingColumns=True).createOrReplaceTempView(
            name
        )

    def table(self, name: str, path: str) -> None:
        place = self._place(path, f"{name}.parquet")
        self._do(lambda: self._read([place]).createOrReplaceTempView(name))

    def local_table(self, name: str, path: Path) -> None:
        place = f"file://{path}"
        if self._url is not None:  # executors are on other machines
            shared = f"{self._room.hidden}/given-{name}.parquet"
            self._room.storage.upload(path, shared)
            place, self._has_shared = f"{self._url}/{shared}", True
        self._do(lambda: self._read([place]).createOrReplaceTempView(name))

    def values(self, name: str, rows: pa.Table) -> None:
        self._do(lambda: self._given(rows).createOrReplaceTempView(name))

    def define(self, name: str, text: str) -> None:
        self._do(lambda: self._session.sql(text).createOrReplaceTempView(name))

    def column(self, query: str) -> list[Any]:
        rows = self._do(lambda: self._session.sql(sql_text(query)).collect())
        return [row[0] for row in rows]

    def stream(self, query: str, rows: int, stage: str = "") -> Iterator[pa.RecordBatch]:
        store, folder, _ = self._answer(query, stage)
        with _translated():
            yield from in_batches(
                self._room.work.until_stopped(_rows_of(store, folder, rows)), rows
            )
        store.delete(folder)

    def _answer(self, query: str, stage: str) -> tuple[Storage, str, str]:
        """Write a query's answer and return its place.

        The place is a store, a folder of the store, and the folder's address.
        """
        self._results += 1
        store: Storage = LocalStorage(self._room.scratch)
        folder, root = f"result-{self._results}", f"file://{self._room.scratch}"
        if self._url is not None:  # where all executors see it
            store, folder, root = self._room.storage, f"{self._room.hidden}/{folder}", self._url
        writer = self._do(
            lambda: self._session.sql(sql_text(query)).write.option(
                "parquet.block.size", PART_BYTES
            )
        )
        self._do(lambda: writer.parquet(f"{root}/{folder}"), stage)
        return store, folder, f"{root}/{folder}"

    def keep(self, name: str, query: str, stage: str = "", *, more: bool = False) -> None:
        *_, place = self._answer(query, stage)
        self._do(lambda: self._keep(name, place, more))

    def _keep(self, name: str, place: str, more: bool) -> None:
        kept = self._session.read.parquet(place)
        (self._session.table(name).unionByName(kept) if more else kept).createOrReplaceTempView(
            name
        )

    def shares(self, size_bytes: int) -> list[str]:
        return ["true"]

    def interrupt(self) -> None:
        """End the Java process, and with it the job everywhere.

        Without its driver a job ends on every machine.
        """
        self._dead = True
        _kill_java()

    def close(self) -> None:
        try:
            with _translated():
                if self._dead:
                    _forget(self._session)
                else:
                    self._session.stop()
        finally:
            self._thread.shutdown()
            _stop_java()
            self.clean()

    def clean(self) -> None:
        """Delete files that executors left in the store for each other."""
        if (self._results or self._has_shared) and self._url is not None:
            self._room.storage.delete(self._room.hidden)

    def _do(self, ask: Callable[[], _T], stage: str = "") -> _T:
        """Ask Spark a question that may take long."""
        with _translated():
            return patiently(
                self._thread,
                ask,
                self._room.work,
                self.interrupt,
                stage=stage,
                percent=self._percent,
            )

    def _place(self, path: str, copy: str) -> str:
        """Return the place where Spark reads a file of the store."""
        if self._url is not None:
            return f"{self._url}/{path}"
        local = self._room.storage.local_path(path)
        if local is None:
            local = self._room.scratch / copy
            self._room.storage.download(path, local)
        return f"file://{local}"

    def _read(self, places: Sequence[str], **options: str) -> DataFrame:
        # Without recursiveFileLookup a folder `a=b` on the way to the file would become a column `a`.
        reader = self._session.read.options(recursiveFileLookup="true", **options)
        try:
            return reader.parquet(*[GLOB.sub(r"\\\1", place) for place in places])
        except AnalysisException as error:
            if self._url is None or error.getCondition() != "PATH_NOT_FOUND":
                raise
            raise PathNotFoundError(
                f"Spark: {_short(error)}: is spark.dfs_url ({self._url}) the root of dfs_primary"
                f" ({self._room.storage.name})?"
            ) from error

    def _given(self, rows: pa.Table) -> DataFrame:
        # By way of Arrow: Python's rows would start a Python on every executor, of this very version.
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", FutureWarning
            )  # of PySpark about pandas, which is not used
            return self._session.createDataFrame(rows)

    def _percent(self) -> int:
        tracker = self._session.sparkContext.statusTracker()
        infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        tasks = sum(info.numTasks for info in infos if info is not None)
        done = sum(info.numCompletedTasks for info in infos if info is not None)
        return 100 * done // tasks if tasks else 0


def _rows_of(store: Storage, folder: str, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all parts, in order.

    The order is by the parts' numbers: `part-00007-<id>-c000.zstd.parquet`.
    """
    names = [entry.name for entry in store.list(folder) if entry.name.startswith("part-")]
    for name in sorted(names, key=lambda name: (int(name.split("-")[1]), name)):
        with store.open_seekable(f"{folder}/{name}") as file, pq.ParquetFile(file) as part:
            yield from part.iter_batches(rows)


def open_spark(config: Config, room: Workplace) -> Spark:
    """Open a Spark session at `spark.master`.

    Its Java process, temporary files and parts end with `close`. Raises ConfigError if Java is missing, if executors
    could not read the files of this machine, or if Hadoop's configuration of a secured HDFS is missing; LockedError if
    this process runs Spark already; StorageError if Spark does not start; StoppedError.
    """
    local = config.spark.master.startswith("local")
    if not local and config.spark.dfs_url is None:
        raise ConfigError(
            f"spark.dfs_url: is not set, and with spark.master: {config.spark.master} other machines do the work, which"
            " cannot read this one's disk; give the root of dfs_primary as Spark reads it, or spark.master: local[*]"
        )
    if SparkContext._active_spark_context is not None:
        raise LockedError("Spark: this process runs a Spark session already; stop it first")
    try:
        spark = Spark(_start(_options(config, room, local), room), room, config.spark.dfs_url)
    except BaseException:
        _kill_java()
        _stop_java()
        raise
    try:
        if is_secured(config):
            with _translated():
                check_kerberos(SparkContext._jvm, str(config.spark.dfs_url))
    except BaseException:
        spark.close()
        raise
    return spark


def _start(options: Mapping[str, str], room: Workplace) -> SparkSession:
    """Start Java and Spark.

    Java's own messages go to a file in scratch, and into the error after a failure.
    """
    conf = SparkConf(loadDefaults=False)
    for key, value in options.items():
        conf.set(key, value)
    log = room.scratch / "spark.log"
    with log.open("wb") as file:
        try:
            gateway = launch_gateway(conf, {"stdout": file, "stderr": file})
            SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
            room.work.go_on()
            # In another thread, Spark also leaves Ctrl-C to the program that runs us.
            with ThreadPoolExecutor(1) as thread:
                patiently(
                    thread, lambda: SparkContext(gateway=gateway, conf=conf), room.work, _kill_java
                )
            return SparkSession.builder.getOrCreate()
        except (PySparkException, Py4JError, OSError) as error:
            file.flush()
            said = log.read_text(encoding="utf-8", errors="replace").split("\n\tat ")[0]
            raise StorageError(
                f"Spark: does not start at {conf.get('spark.master')}: {_short(error)}: {said[-1000:]}"
            ) from error


def _options(config: Config, room: Workplace, local: bool) -> dict[str, str]:
    """Return the options needed for results, disk and ports.

    The rest is the operator's spark-defaults.
    """
    log4j = room.scratch / "log4j2.properties"
    log4j.write_text(LOG4J, encoding="utf-8")
    java = {"java.io.tmpdir": str(room.scratch), "log4j2.configurationFile": log4j.as_uri()}
    if config.dfs.security == "simple":
        java["HADOOP_USER_NAME"] = config.dfs.user
    if is_secured(config):
        java |= java_options(os.environ)
    options = {
        "spark.master": config.spark.master,
        "spark.app.name": "krake",
        "spark.driver.extraJavaOptions": " ".join(
            f'"-D{key}={value}"' for key, value in java.items()
        ),
        "spark.local.dir": str(room.scratch),
        "spark.sql.warehouse.dir": (room.scratch / "warehouse").as_uri(),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": f"{max(room.memory_bytes, LEAST_BYTES) >> 20}m",
    }
    if is_secured(config):
        # Executors get tokens for this HDFS (on YARN and Kubernetes), also where fs.defaultFS is another one.
        options["spark.kerberos.access.hadoopFileSystems"] = str(config.spark.dfs_url)
    if local:
        options |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return options


def _kill_java() -> None:
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.proc.kill()


def _forget(session: SparkSession) -> None:
    """Forget the ended session in this process.

    Its Java is dead.
    """
    context = session.sparkContext
    context._jsc = None  # there is nothing left to be told
    context.stop()
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _stop_java() -> None:
    """End the Java process.

    PySpark would keep it, with its memory and options, until this process ends.
    """
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    SparkContext._active_spark_context = None  # where stop() failed
    if gateway is None:
        return
    with suppress(Py4JError, OSError):  # it may be dead
        gateway.shutdown()
    java: subprocess.Popen[bytes] = gateway.proc
    if java.stdin is not None:
        java.stdin.close()  # which it takes as the end
    try:
        java.wait(STOP_S)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()


def _path_of(uri: str) -> str:
    """Return the path of an address `scheme://authority/path`."""
    return "/" + uri.split("://", 1)[1].partition("/")[2]


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError, pa.ArrowException, OSError) as error:
        raise StorageError(f"Spark: {_short(error)}") from error


def _short(error: Exception) -> str:
    text = str(error).split("\n\tat ")[0].split("\nJVM stacktrace")[0]
    return " ".join(text.split())[:1000]
