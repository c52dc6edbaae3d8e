"""A real HDFS on this machine: one or two namenodes and a datanode in a directory, on free ports.

The jars come by Maven (`pom.xml` in this folder) into `target/dependency`, once. Java 17 runs them. The classes that
servers load are kept parsed and verified in archives next to the jars (class data sharing), and so is an empty file
system: a server then starts with half of the CPU.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from xml.sax.saxutils import escape

import requests

from tests.cluster.processes import wait_until
from tests.ports import free_port

HERE = Path(__file__).resolve().parent
TARGET = HERE / "target"
JARS = TARGET / "dependency"
FORMATTED = TARGET / "formatted"
"""What `namenode -format` leaves, for clusters of one namenode."""
NOT_NEEDED = re.compile(r"yarn|mapreduce|jaxb-impl|common-.*-tests")
"""Jars of other servers, and one whose classes Java 17 refuses: another jar has them, too."""
NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
FAST_START = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:cds=off")
ADMIN = "org.apache.hadoop.hdfs.tools.DFSHAAdmin"
NAMESERVICE = "k"
BLOCK = 32 << 20
"""A quarter of the usual: a file of several blocks need not be that large."""
START_LIMIT_S = 240.0  # on a machine that does much else
ANSWER_LIMIT_S = 60.0
PR_SET_PDEATHSIG = 1
LOG4J = """log4j.rootLogger=INFO,err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
"""


def why_not() -> str:
    """Why HDFS cannot run here, "" if it can."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    return f"{' and '.join(missing)} not installed" if missing else ""


def resolve_jars() -> None:
    """Fetch the jars and make the archives of classes if they are not there; processes that need them at once wait.

    About half a minute, once.
    """
    with (HERE / "pom.xml").open("rb") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        if not all(
            any(JARS.glob(name)) for name in ("hadoop-hdfs-3*.jar", "hadoop-hdfs-httpfs-3*.jar")
        ):
            command = ["mvn", "-q", "-B", "-ntp", "dependency:copy-dependencies"]
            done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, (
                f"Maven cannot resolve Hadoop:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
        if not FORMATTED.exists():
            with tempfile.TemporaryDirectory(dir=TARGET) as folder:
                with Archiving(Path(folder)):
                    pass
                (Path(folder) / "blank").rename(FORMATTED)


def classpath(conf: Path) -> str:
    """Hadoop's jars in an order that is always the same, and a server's configuration. Archives fit no other order."""
    return ":".join(
        [
            *(str(jar) for jar in sorted(JARS.glob("*.jar")) if not NOT_NEEDED.search(jar.name)),
            str(conf),
        ]
    )


def archive(main: str) -> Path:
    """The archive of the classes that a program loads: most, where it has none of its own.

    Java passes over one that another Java made.
    """
    return TARGET / ("datanode.jsa" if main == DATANODE else "namenode.jsa")


def us() -> str:
    """Who starts the servers, and is their administrator: what the system says, as Hadoop asks it."""
    return pwd.getpwuid(os.geteuid()).pw_name


def own_names(folder: Path) -> str:
    """An option of Java: this machine's name is that of the loopback, whatever name servers say, or do not say."""
    (folder / "hosts.new").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
    (folder / "hosts.new").replace(folder / "hosts")  # servers that run read it at each look-up
    return f"-Djdk.net.hosts.file={folder / 'hosts'}"


def site(options: Mapping[str, str]) -> str:
    """A file of Hadoop's configuration."""
    lines = [
        f"<property><name>{key}</name><value>{escape(value)}</value></property>"
        for key, value in options.items()
    ]
    return "<configuration>\n" + "\n".join(sorted(lines)) + "\n</configuration>\n"


def die_with_parent() -> None:
    """In a server: its end when the thread that started it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Hdfs:
    """One cluster. `namenodes`: 1, or 2 with fail-over by hand (`fail_over`). Use as a context manager.

    `port`: gives its ports, one a call. A directory with the data of an earlier cluster is continued.
    A subclass makes it a secured one: `scheme`, `session`, `security`, `java_options`, `environment`,
    `administrator`.
    """

    scheme = "http"
    java_options: tuple[str, ...] = ()
    environment: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self, directory: Path, namenodes: int = 1, port: Callable[[], int] = free_port
    ) -> None:
        self.directory = directory
        self.names = [f"nn{number}" for number in range(1, namenodes + 1)]
        self.rpc = {name: port() for name in self.names}
        self.http = {name: port() for name in self.names}
        self.data_ports = [port() for _ in range(3)]
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.session = requests.Session()

    def __enter__(self) -> Hdfs:
        try:
            self._start_all()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self.session.close()

    def _start_all(self) -> None:
        for name in [*self.names, "dn"]:
            self._configure(name)
        if not (self.directory / "name-nn1" / "current").exists():
            self.format()
        self.start("nn1")
        if len(self.names) > 1:
            self.bootstrap()
            self.start("nn2")
            self.make_active("nn1")
        self.start("dn")
        self.wait_ready()
        self._make_home()

    def format(self) -> None:
        """Make an empty file system."""
        if len(self.names) == 1 and FORMATTED.exists():
            shutil.copytree(FORMATTED, self.directory / "name-nn1")
        else:
            self.java("nn1", NAMENODE, "-format", "-nonInteractive", "-force")

    def bootstrap(self) -> None:
        """Give nn2 what nn1 has: by hand, since Hadoop's own way is one more start of Java."""
        source, target = (self.directory / f"name-{name}" for name in ("nn1", "nn2"))
        shutil.copytree(
            source, target, ignore=shutil.ignore_patterns("in_use.lock"), dirs_exist_ok=True
        )

    def _make_home(self) -> None:
        """What an administrator does first: a root folder that the user `krake` owns."""
        for query in ("op=MKDIRS", "op=SETOWNER&owner=krake"):
            address = f"{self.active()}/webhdfs/v1/krake?{query}{self.administrator()}"
            self.session.put(address, timeout=ANSWER_LIMIT_S).raise_for_status()

    def administrator(self) -> str:
        """What a request's query says when the user who started HDFS sends it."""
        return f"&user.name={us()}"

    def security(self, folder: Path) -> set[tuple[str, str]]:
        """Options of a secured cluster. `folder`: of a server's configuration."""
        return set()

    def url(self, name: str) -> str:
        """The WebHDFS address of one namenode."""
        return f"{self.scheme}://127.0.0.1:{self.http[name]}"

    @property
    def address(self) -> str:
        """All namenodes, as `dfs_primary` names them, without a root path."""
        return ";".join(self.url(name) for name in self.names)

    def active(self) -> str:
        """The address of the namenode that answers."""
        return next(self.url(name) for name in self.names if self._answers(name))

    def start(self, name: str) -> None:
        """Start `nn1`, `nn2` or `dn`; a namenode's ports are open then. It dies with the calling thread."""
        main = DATANODE if name == "dn" else NAMENODE
        log = (self.directory / f"{name}.log").open("ab")
        with log:
            self.running[name] = subprocess.Popen(
                self._command(name, main),
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C at the terminal is for us alone
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one call, no lock
            )
        if name != "dn":
            wait_until(f"{name} listens", lambda: self._listens(name), START_LIMIT_S)

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def fail_over(self) -> None:
        """Kill the active namenode nn1 and make nn2 active."""
        self.kill("nn1")
        self.make_active("nn2", "--forceactive")

    def stop(self) -> None:
        """Stop everything that was started."""
        for name in list(self.running):
            self.kill(name)

    def wait_ready(self) -> None:
        """Until a namenode is active, out of safe mode, and knows a live datanode."""
        wait_until(
            "HDFS is ready",
            lambda: any(self._has_datanode(name) for name in self.names),
            START_LIMIT_S,
        )

    def _listens(self, name: str) -> bool:
        code = self.running[name].poll()
        assert code is None, (
            f"{name} ended with {code}:\n{(self.directory / f'{name}.log').read_text()[-3000:]}"
        )
        try:
            self.session.get(f"{self.url(name)}/jmx?qry=none", timeout=ANSWER_LIMIT_S)
            socket.create_connection(
                ("127.0.0.1", self.rpc[name]), timeout=ANSWER_LIMIT_S
            ).close()  # opens later
        except OSError:
            return False
        return True

    def _answers(self, name: str) -> bool:
        try:
            return self.session.get(
                f"{self.url(name)}/webhdfs/v1/?op=GETFILESTATUS", timeout=ANSWER_LIMIT_S
            ).ok
        except requests.RequestException:
            return False

    def _has_datanode(self, name: str) -> bool:
        if not self._answers(name):
            return False
        query = "Hadoop:service=NameNode,name=FSNamesystemState"
        [state] = self.session.get(
            f"{self.url(name)}/jmx?qry={query}", timeout=ANSWER_LIMIT_S
        ).json()["beans"]
        return bool(state["NumLiveDataNodes"] >= 1 and state["FSState"] == "Operational")

    def java(self, name: str, main: str, *arguments: str) -> None:
        """Run one of Hadoop's tools to its end, with the configuration of a server."""
        done = self.tool(name, main, *arguments)
        assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")[-3000:]

    def tool(
        self, name: str, main: str, *arguments: str, answer: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """The same, whatever comes of it."""
        return subprocess.run(
            [*self._command(name, main), *arguments],
            input=answer,
            env=os.environ | self.environment,
            capture_output=True,
            timeout=START_LIMIT_S,
        )

    def make_active(self, name: str, *options: str) -> None:
        """A namenode that listens may still be starting: it says so then, and is asked again."""
        asked = (name, ADMIN, "-transitionToActive", *options, name)
        wait_until(
            f"{name} is active",
            lambda: self.tool(*asked, answer=b"Y\n").returncode == 0,
            START_LIMIT_S,
        )

    def _command(self, name: str, main: str) -> list[str]:
        options = [
            *FAST_START,
            f"-XX:SharedArchiveFile={archive(main)}",
            "-Djava.net.preferIPv4Stack=true",
        ]
        options += [own_names(self.directory), *self.java_options]
        return ["java", *options, "-cp", classpath(self.directory / f"conf-{name}"), main]

    def _configure(self, name: str) -> None:
        folder = self.directory / f"conf-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "log4j.properties").write_text(LOG4J)
        for file in ("core-site.xml", "hdfs-site.xml"):
            (folder / file).write_text(site(self.options(name, folder)))

    def options(self, name: str, folder: Path) -> dict[str, str]:
        """The configuration of a server, and of its clients. `folder`: where it lies."""
        own = self._pair(name) if len(self.names) > 1 else self._single()
        return dict(self._common(name) | own | self.security(folder))

    def _common(self, name: str) -> set[tuple[str, str]]:
        data, http, ipc = self.data_ports
        return {
            ("hadoop.tmp.dir", str(self.directory / f"tmp-{name}")),
            ("dfs.namenode.name.dir", f"file://{self.directory}/name-{name}"),
            ("dfs.datanode.data.dir", f"file://{self.directory}/data"),
            ("dfs.replication", "1"),
            ("dfs.blocksize", str(BLOCK)),
            ("dfs.datanode.synconclose", "true"),
            ("dfs.datanode.hostname", "127.0.0.1"),
            ("dfs.datanode.address", f"127.0.0.1:{data}"),
            (f"dfs.datanode.{self.scheme}.address", f"127.0.0.1:{http}"),
            ("dfs.datanode.ipc.address", f"127.0.0.1:{ipc}"),
            ("dfs.heartbeat.interval", "1"),
            ("dfs.namenode.heartbeat.recheck-interval", "2000"),
            ("dfs.namenode.safemode.extension", "0"),
            (
                "dfs.namenode.block.deletion.unlock.interval.ms",
                "1000",
            ),  # else a thread wakes up every 10 ms
            # Its user may speak for everybody, as a gateway does.
            (f"hadoop.proxyuser.{us()}.hosts", "*"),
            (f"hadoop.proxyuser.{us()}.groups", "*"),
            ("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", "20"),
        }

    def _single(self) -> set[tuple[str, str]]:
        return {
            ("fs.defaultFS", f"hdfs://127.0.0.1:{self.rpc['nn1']}"),
            (f"dfs.namenode.{self.scheme}-address", f"127.0.0.1:{self.http['nn1']}"),
        }

    def _pair(self, name: str) -> set[tuple[str, str]]:
        provider = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
        options = {
            ("fs.defaultFS", f"hdfs://{NAMESERVICE}"),
            ("dfs.nameservices", NAMESERVICE),
            (f"dfs.ha.namenodes.{NAMESERVICE}", ",".join(self.names)),
            (f"dfs.client.failover.proxy.provider.{NAMESERVICE}", provider),
            ("dfs.namenode.shared.edits.dir", f"file://{self.directory}/shared-edits"),
            ("dfs.ha.fencing.methods", "shell(/bin/true)"),
            ("dfs.ha.tail-edits.period", "1"),
            ("dfs.client.failover.sleep.base.millis", "100"),
            ("ipc.client.connect.retry.interval", "200"),
        }
        for node in self.names:
            options.add(
                (f"dfs.namenode.rpc-address.{NAMESERVICE}.{node}", f"127.0.0.1:{self.rpc[node]}")
            )
            options.add(
                (
                    f"dfs.namenode.{self.scheme}-address.{NAMESERVICE}.{node}",
                    f"127.0.0.1:{self.http[node]}",
                )
            )
        return options | ({("dfs.ha.namenode.id", name)} if name in self.names else set())


class Archiving(Hdfs):
    """A cluster whose servers and tools write the archives of their classes when they end."""

    def format(self) -> None:
        """See Hdfs."""
        super().format()
        shutil.copytree(self.directory / "name-nn1", self.directory / "blank")

    def kill(self, name: str) -> None:
        """Let it end by itself, which writes the archive."""
        process = self.running.pop(name)
        process.terminate()
        process.wait()

    def _command(self, name: str, main: str) -> list[str]:
        command = super()._command(name, main)
        place = next(number for number, word in enumerate(command) if "SharedArchiveFile" in word)
        command[place] = f"-XX:ArchiveClassesAtExit={archive(main)}"
        return command
