"""Docker, Compose v2 and stand-ins for base images, on a machine that reaches no registry of images.

Debian has the engine (`docker.io`) and what the stand-ins are made of, the Go module proxy has Compose, and Maven
Central has Hadoop. All of them are pinned. What is made here stays: images in Docker, Compose in `target/`.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.cluster import hdfs

ROOT = Path(__file__).resolve().parents[2]
IMAGES = Path(__file__).resolve().parent / "images"
TARGET = Path(__file__).resolve().parent / "target"
COMPOSE = "github.com/docker/compose/v2"
COMPOSE_VERSION = "v2.40.3"
COMPOSE_SUM = "h1:XeYkQu1svDtyfZPv5nTwFryQ25ZJMkIlc4pz9HalMPI="
"""What Go's checksum database says of the module, as in a `go.sum`."""
BASE = "krake-stand-in/debian"
OWN_CERTIFICATES = Path("/usr/local/share/ca-certificates")
"""Where Debian keeps the certificates that an operator added."""
START_S = 60.0
BUILD_S = 1800.0


def why_not() -> str:
    """Say why the containers cannot run here; return "" if they can."""
    programs = ["docker", "dockerd", "debootstrap", "go", "mvn", "java"]
    missing = [f"{name} is not installed" for name in programs if shutil.which(name) is None]
    if os.geteuid() != 0:
        missing.append("this user is not root")
    return "; ".join(missing)


def run(
    *command: str, check: bool = True, timeout_s: float = BUILD_S, cwd: Path = ROOT, stdin: str = ""
) -> str:
    """Run a command and return what it printed; fail with its last lines where it fails and `check`."""
    done = subprocess.run(
        command,
        input=stdin,
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
    )
    assert done.returncode == 0 or not check, (
        f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}"
    )
    return done.stdout


def environment() -> dict[str, str]:
    """Return the variables of all commands: Docker finds our Compose by one of these."""
    return {**os.environ, "DOCKER_CONFIG": str(TARGET / "docker"), "DOCKER_BUILDKIT": "0"}


class EngineError(Exception):
    """No Docker engine can run on this machine; the message has the engine's own reason."""


@contextmanager
def engine() -> Iterator[None]:
    """Use the Docker engine of this machine, or run one while the block lasts. Raises EngineError."""
    if _answers():
        yield
        return
    TARGET.mkdir(exist_ok=True)
    with (TARGET / "dockerd.log").open("wb") as log:
        process = subprocess.Popen(["dockerd"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            end = time.monotonic() + START_S
            while not _answers():
                text = (TARGET / "dockerd.log").read_text()[-2000:]
                if process.poll() is not None or time.monotonic() > end:
                    raise EngineError(f"dockerd does not start: {text}")
                time.sleep(0.2)
            yield
        finally:
            process.terminate()
            process.wait(60)


def _answers() -> bool:
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def make_all() -> None:
    """Make Compose, the stand-ins and Krake's image, where they are missing; Krake's image always."""
    TARGET.mkdir(exist_ok=True)
    with (TARGET / "lock").open("w") as lock, ThreadPoolExecutor() as threads:
        fcntl.flock(lock, fcntl.LOCK_EX)
        compose = threads.submit(make_compose)
        hdfs.resolve_jars()
        make_images()
        compose.result()


def make_compose() -> None:
    """Compile Compose v2 from the module of its pinned version."""
    program = TARGET / "docker" / "cli-plugins" / "docker-compose"
    if program.exists():
        return
    program.parent.mkdir(parents=True, exist_ok=True)
    module = json.loads(run("go", "mod", "download", "-json", f"{COMPOSE}@{COMPOSE_VERSION}"))
    assert module["Sum"] == COMPOSE_SUM, (
        f"{COMPOSE} {COMPOSE_VERSION} is not what it was: {module['Sum']}"
    )
    # Each dependency has its checksum in the module's own go.sum.
    flags = f"-s -w -X {COMPOSE}/internal.Version={COMPOSE_VERSION}"
    new = program.with_suffix(".new")
    run(
        "go",
        "build",
        "-mod=readonly",
        "-trimpath",
        "-ldflags",
        flags,
        "-o",
        str(new),
        "./cmd",
        cwd=Path(module["Dir"]),
    )
    new.rename(program)


def images() -> dict[str, str]:
    """Return the images that are not ours, as docker-compose.yml and Dockerfile pin them, by the stand-in's name."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"].values()
    base = (ROOT / "Dockerfile").read_text().split("\nFROM ")[1].split()[0]
    names = {service["image"] for service in services if service["image"] != "krake:local"} | {base}
    return {name.split(":")[0].removeprefix("apache/"): name for name in names}


def make_images() -> None:
    """Make each stand-in that is missing, then Krake's image as `docker compose build` makes it."""
    missing = [(target, tag) for target, tag in images().items() if not has_image(tag)]
    if missing:
        if not has_image(BASE):
            make_base()
        with tempfile.TemporaryDirectory() as folder:
            context = Path(folder) / "context"
            shutil.copytree(IMAGES, context)
            (context / "jars").mkdir()
            for jar in hdfs.JARS.glob("*.jar"):
                if not hdfs.NOT_NEEDED.search(jar.name):
                    (context / "jars" / jar.name).hardlink_to(jar)
            for target, tag in missing:
                run(
                    "docker",
                    "build",
                    "--network",
                    "host",
                    "-q",
                    "--target",
                    target,
                    "-t",
                    tag,
                    str(context),
                )
    certificates = "".join(path.read_text() for path in sorted(OWN_CERTIFICATES.glob("*.crt")))
    argument = f"CERTIFICATE={certificates}"
    run(
        "docker",
        "build",
        "--network",
        "host",
        "-q",
        "--build-arg",
        argument,
        "-t",
        "krake:local",
        str(ROOT),
    )


def has_image(tag: str) -> bool:
    """Return whether Docker has an image: one that was pulled is used as it is."""
    return run("docker", "image", "ls", "-q", tag).strip() != ""


def make_base() -> None:
    """Import a small Debian, with this machine's sources of packages and its certificates."""
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    lines = run("apt-get", "indextargets", "--format", "$(REPO_URI)", f"Codename: {suite}").split()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        run("debootstrap", "--variant=minbase", suite, folder, lines[0])
        for path in ("etc/apt/sources.list", "etc/ssl/certs/ca-certificates.crt"):
            (root / path).unlink(missing_ok=True)
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            if (Path("/") / path).exists():
                shutil.copy(Path("/") / path, root / path)
        shutil.copytree(
            "/etc/apt/sources.list.d", root / "etc/apt/sources.list.d", dirs_exist_ok=True
        )
        shutil.copytree(OWN_CERTIFICATES, root / str(OWN_CERTIFICATES)[1:], dirs_exist_ok=True)
        run(
            "sh",
            "-c",
            f"tar -C {folder} --exclude=./var/cache/apt/archives/*.deb -c . | docker import - {BASE}",
        )
