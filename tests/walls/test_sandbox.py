"""The walls around fetching processes (Landlock): what a worker that somebody else took over could still open."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.stores import open_stores
from crawl_lib.walls import NONE_TEXT, fork_server, landlock_abi
from crawl_lib.worker import workers
from demo import Serving, SynthWeb
from tests.e2e.crawl import make_config, run_iteration

ROOT = Path(__file__).resolve().parents[2]
ABI = landlock_abi()
WEB = SynthWeb(seed=5, sites=1, pages_per_site=3, specials=False)
ABIS = sorted({min(ABI, 1), min(ABI, 4), ABI})
needs_landlock = pytest.mark.skipif(not ABI, reason=NONE_TEXT)

TRIED = """
import contextlib, json, os, signal, socket, sqlite3, sys, threading
from pathlib import Path
from crawl_lib.walls import sandbox
from crawl_lib.worker.worker import build_walls
if {abi}:
    sandbox.landlock_abi = lambda: {abi}
home, node, parent = Path({home!r}), Path({home!r}) / "queue/node-a", os.getppid()
build_walls(node, node / "spool")

def connect(name):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(name)

def bind(path):
    # by its name in the folder: the kernel takes no path of more than 107 bytes
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)

def execute(path):
    pid = os.fork()
    if pid == 0:
        try:
            os.execv(path, [path, "-c", ""])
        except OSError as error:
            os._exit(error.errno)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))

def in_thread(call):
    raised = []
    def run():
        try:
            call()
        except OSError as error:
            raised.append(error)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]

def base(folder):
    with sqlite3.connect(folder / "some.sqlite") as one:
        one.execute("PRAGMA journal_mode=WAL")
        one.execute("CREATE TABLE t (x)")
        one.execute("INSERT INTO t VALUES (1)")
    one.close()

def script(path):
    path.write_text("#!/bin/sh\\nexit 0\\n")
    path.chmod(0o755)
    execute(str(path))

def seen(call):
    try:
        call()
    except (OSError, sqlite3.Error) as error:
        return type(error).__name__
    return "done"

{more}
print(json.dumps({{name: seen(call) for name, call in tried.items()}}))
"""
REFUSED = """
tried = {
    "own queue": lambda: (node / "0").read_bytes(),
    "own state": lambda: (node / "state").read_bytes(),
    "own directory": lambda: os.listdir(node),
    "another node's queue": lambda: (home / "queue/node-b/0").read_bytes(),
    "another node's hosts": lambda: (home / "queue/node-b/hosts/hosts.sqlite").read_bytes(),
    "all queues": lambda: os.listdir(home / "queue"),
    "config": lambda: (home / "config.yml").read_bytes(),
    "config of the project": lambda: Path("config/krake-config.yml").read_bytes(),
    "home": lambda: os.listdir(Path.home()),
    "root": lambda: os.listdir("/"),
    "passwords": lambda: Path("/etc/shadow").read_bytes(),
    "users": lambda: Path("/etc/passwd").read_bytes(),
    "private keys": lambda: os.listdir("/etc/ssl/private"),
    "shared memory": lambda: os.listdir("/dev/shm"),
    "environment of the task": lambda: Path(f"/proc/{parent}/environ").read_bytes(),
    "memory of the task": lambda: open(f"/proc/{parent}/mem", "rb"),
    "command line of the task": lambda: Path(f"/proc/{parent}/cmdline").read_bytes(),
    "a file by a path that goes round": lambda: (node / "spool/../0").read_bytes(),
    "a file by a link": lambda: (node / "spool/link").read_bytes(),
    "a file in a thread": lambda: in_thread((node / "0").read_bytes),
    "write the take": lambda: (node / "take").open("ab"),
    "write the state": lambda: (node / "state").write_bytes(b""),
    "write next to the spool": lambda: (node / "more").write_bytes(b""),
    "write to another node": lambda: (home / "queue/node-b/hosts/new").write_bytes(b""),
    "write elsewhere": lambda: (home / "elsewhere").write_bytes(b""),
    "write code": lambda: Path(sandbox.__file__).open("ab"),
    "move a file out": lambda: (node / "spool/part").rename(node / "state"),
    "move a file in": lambda: (node / "another").rename(node / "spool/another"),
    "a hard link": lambda: (node / "spool/hard").hardlink_to(node / "state"),
    "a symbolic link": lambda: (node / "spool/soft").symlink_to(node / "state"),
    "a folder": lambda: (node / "spool/folder").mkdir(),
    "a pipe": lambda: os.mkfifo(node / "spool/pipe"),
    "a socket": lambda: bind(node / "spool/socket"),
    "execute a program": lambda: execute("/bin/true"),
    "execute Python": lambda: execute(sys.executable),
    "execute a script of its own": lambda: script(node / "spool/script"),
    "delete the state": lambda: (node / "state").unlink(),
    "delete the spool": lambda: (node / "spool").rename(node / "gone"),
}
if sandbox.landlock_abi() >= 3:
    tried["cut the take"] = lambda: os.truncate(node / "take", 0)
if sandbox.landlock_abi() >= 6:
    tried["a signal to the task"] = lambda: os.kill(parent, signal.SIGTERM)
    tried["a socket of the task"] = lambda: connect("\\0" + str(home)[-100:])
"""
ALLOWED = """
from crawl_lib.fetch import HostStore, Turns
import ssl

def hosts():
    with HostStore(node / "hosts") as store:
        store.begin()
    with Turns(node / "hosts/ip-turns", longest_s=9.0, delay_s=1.0) as turns:
        assert turns.reserve("a", 1.0) == 0.0

def in_child():
    pid = os.fork()
    if pid == 0:
        (node / "spool/of-child").write_bytes(b"x")
        os._exit(0)
    os.kill(pid, 0)
    assert os.waitpid(pid, 0)[1] == 0

tried = {
    "the take": lambda: (node / "take").read_bytes(),
    "a new file": lambda: (node / "spool/new").write_bytes(b"x"),
    "the same file": lambda: (node / "spool/new").open("r+b").truncate(0),
    "another name": lambda: (node / "spool/new").rename(node / "spool/newer"),
    "its deletion": lambda: (node / "spool/newer").unlink(),
    "the list of the spool": lambda: os.listdir(node / "spool"),
    "fsync of the spool": lambda: os.fsync(os.open(node / "spool", os.O_RDONLY)),
    "a data base": lambda: base(node / "hosts"),
    "hosts and turns": hosts,
    "a child": in_child,
    "names": lambda: socket.getaddrinfo("localhost", 80),
    "certificates": lambda: ssl.create_default_context().load_default_certs(),
    "a module of Python": lambda: __import__("xmlrpc.client"),
    "a module that is installed": lambda: __import__("yaml"),
    "a module of Krake": lambda: __import__("crawl_lib.graph"),
    "chance": lambda: Path("/dev/urandom").open("rb").read(1),
    "nothing": lambda: Path("/dev/null").write_bytes(b"x"),
    "zones": lambda: Path("/usr/share/zoneinfo/UTC").exists() and Path("/usr/share/zoneinfo/UTC").read_bytes(),
    "code": lambda: Path(sandbox.__file__).read_bytes(),
}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    ours = [f"node-a/{name}" for name in ("0", "state", "take", "another", "spool/part")]
    for path in (*ours, "node-b/0", "node-b/hosts/hosts.sqlite"):
        file = tmp_path / "queue" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"here")
    (tmp_path / "queue/node-a/hosts").mkdir()
    (tmp_path / "queue/node-a/spool/link").symlink_to(tmp_path / "queue/node-b/0")
    (tmp_path / "config.yml").write_text("servers: []")
    return tmp_path


def seen(home: Path, tried: str, abi: int = 0) -> dict[str, str]:
    """What became of each try, in a process behind the walls: "done", or the class of its error."""
    program = TRIED.format(home=str(home), abi=abi, more=tried)
    with socket.socket(socket.AF_UNIX) as ours:
        ours.bind(f"\0{str(home)[-100:]}")
        ours.listen()
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@needs_landlock
@pytest.mark.parametrize("abi", ABIS)
def test_nothing_else_can_be_opened_written_or_executed(home: Path, abi: int) -> None:
    """Also where Landlock is older than this kernel's; files that are not there at all are no proof."""
    before = {
        path: path.read_bytes()
        for path in home.rglob("*")
        if path.is_file() and "spool" not in path.parts
    }
    found = seen(home, REFUSED, abi)
    assert {
        name for name, what in found.items() if what not in ("PermissionError", "OSError")
    } - _missing() == set()
    assert "done" not in found.values()
    assert before == {path: path.read_bytes() for path in before}


def _missing() -> set[str]:
    """Tries for files that this machine does not have."""
    paths = {
        "private keys": "/etc/ssl/private",
        "passwords": "/etc/shadow",
        "shared memory": "/dev/shm",
    }
    return {name for name, path in paths.items() if not Path(path).exists()}


def test_each_of_these_tries_would_succeed_without_walls(home: Path) -> None:
    """But for what only root may do."""
    lacking = TRIED.replace("build_walls(node", "(lambda *_: None)(node")
    program = lacking.format(
        home=str(home), abi=0, more=REFUSED.replace("parent, signal.SIGTERM", "parent, 0")
    )
    with socket.socket(socket.AF_UNIX) as ours:
        ours.bind(f"\0{str(home)[-100:]}")
        ours.listen()
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True
        )
    found = json.loads(done.stdout)
    of_root = {"passwords", "private keys", "root", "shared memory", "home", "memory of the task"}
    assert {name for name, what in found.items() if what != "done"} <= of_root


@needs_landlock
@pytest.mark.parametrize("abi", ABIS)
def test_what_a_worker_needs_goes_on(home: Path, abi: int) -> None:
    assert {name: what for name, what in seen(home, ALLOWED, abi).items() if what != "done"} == {}


SERVER = """
import json, os, sys
from pathlib import Path
from crawl_lib.walls import forkserver, sandbox
from crawl_lib.worker import worker
{prepare}
forkserver.serve(int(sys.argv[-2]), int(sys.argv[-1]), worker.main)
"""
LOOK = """
threads = []
shut_in = worker.shut_in
def noting(**given):
    threads.append(len(os.listdir("/proc/self/task")))
    return shut_in(**given)
worker.shut_in = noting
run = worker._Worker.run
def look(self):
    try:
        (Path(self.task.node_dir) / "state").read_bytes()
        raise ValueError("there is no wall")
    except PermissionError:
        (Path(self.task.spool) / "looked").write_text(str(threads))
    return run(self)
worker._Worker.run = look
"""


def crawl(directory: Path, monkeypatch: pytest.MonkeyPatch, iterations: int, prepare: str) -> Path:
    """A small crawl whose server runs some code first; returns the node's directory."""
    config = make_config(directory, nodes=1, fetch={"host_delay_s": 0.0})
    (directory / "program.py").write_text(SERVER.format(prepare=prepare))
    script = directory / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {directory}/program.py "$@"\n')
    script.chmod(0o755)
    with Serving(WEB) as serving:
        monkeypatch.setattr(sys, "executable", str(script))
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        stages.inject(open_stores(config), run_id="run", seeds=serving.seeds[0])
        for number in range(1, iterations + 1):
            run_iteration(config, "run", number)
    fork_server.__globals__["_here"].__dict__.clear()
    return Path(config.queue.local_dir) / "node-0"


@needs_landlock
def test_the_walls_are_up_before_a_worker_reads_anything_and_hold_its_only_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that was there before would be outside."""
    seen: list[str] = []
    real = workers._result

    def note(worker: Any) -> workers.WorkerEnd:
        seen.extend(path.read_text() for path in worker.log.parent.glob("spool/looked"))
        return real(worker)

    monkeypatch.setattr(workers, "_result", note)
    crawl(tmp_path, monkeypatch, 1, LOOK)
    assert seen
    assert set(seen) == {"[1]"}


def test_a_kernel_without_landlock_is_named_once_by_the_task_and_in_each_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers, "landlock_abi", lambda: 0)
    workers._say_if_there_are_no_walls.cache_clear()
    with caplog.at_level(logging.WARNING):
        directory = crawl(tmp_path, monkeypatch, 2, "sandbox.landlock_abi = lambda: 0")
    workers._say_if_there_are_no_walls.cache_clear()
    assert [record.getMessage() for record in caplog.records].count(NONE_TEXT) == 1
    assert (directory / "worker-0.log").read_text().splitlines().count(NONE_TEXT) == 1


def test_a_system_call_that_is_refused_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As containers do whose filter does not know it."""
    code = (
        "from crawl_lib.walls import sandbox\nsandbox._call = "
        "lambda *_: -1\nprint(sandbox.shut_in(read=[], write=[]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == NONE_TEXT
