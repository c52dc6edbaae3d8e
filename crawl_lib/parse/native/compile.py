"""Compiles the scanner of links and sums over graphs: by `cc`, else by a compiler of PyPI. `make setup` runs it.

    python crawl_lib/parse/native/compile.py REQUIREMENTS

REQUIREMENTS: a lock file, with hashes, that names the compiler of PyPI (ziglang, 100 MB); it is downloaded where no
compiler works only, and deleted again. Needs neither headers of Python nor any package.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).parent
LIBRARY = HERE / "liblinks.so.1"  # ending in .so it would be a module to Python
SOURCES = (
    "links.c",
    "css.c",
    "foreign.c",
    "tags.c",
    "tokens.c",
    "text.c",
    "sketch.c",
    "rows.c",
    "planes.c",
    "sums.c",
)
FLAGS = ("-std=c11", "-O3", "-Wall", "-Wextra")
# One body of code, of which nothing is replaced from outside: functions of one file are inlined in another (9 %).
SHARED = ("-shared", "-fPIC", "-flto", "-fno-semantic-interposition")


def build(
    compiler: list[str], target: Path, *flags: str, sources: tuple[str, ...] = SOURCES
) -> None:
    """Compile the library.

    Raises OSError if the compiler cannot be started and CalledProcessError if it fails.
    """
    temporary = target.with_name(f"{target.name}.{os.getpid()}")
    command = [
        *compiler,
        *FLAGS,
        *flags,
        "-o",
        str(temporary),
        *(str(HERE / source) for source in sources),
    ]
    subprocess.run(command, check=True, capture_output=True, text=True)
    temporary.replace(target)  # a process that uses the old one keeps it


def sources_digest() -> int:
    """Return 64 bits that identify the sources.

    A library contains its own sources' bits, so an outdated one is noticed.
    """
    digest = sha256()
    for path in sorted(HERE.glob("*.[ch]")):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return int.from_bytes(digest.digest()[:8], "big")


def _build_shared(compiler: list[str]) -> None:
    build(compiler, LIBRARY, *SHARED, f"-DKRAKE_SOURCES={sources_digest()}u")


def _build_with_packaged(requirements: str) -> None:
    with tempfile.TemporaryDirectory(prefix="krake-compiler-") as folder:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-cache-dir",
        ]
        subprocess.run(
            [*pip, "--require-hashes", "--target", folder, "--requirement", requirements],
            check=True,
        )
        # Its cache would stay behind in the home directory.
        os.environ.update(
            PYTHONPATH=folder, ZIG_GLOBAL_CACHE_DIR=folder, ZIG_LOCAL_CACHE_DIR=folder
        )
        _build_shared([sys.executable, "-m", "ziglang", "cc"])


def main() -> None:
    """Compile into LIBRARY; the exit status is not 0 if that failed."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    try:
        _build_shared(compiler)
        return
    except OSError:
        problem = f"No compiler `{compiler[0]}` here: one is"
    except subprocess.CalledProcessError as error:
        problem = f"`{compiler[0]}` cannot compile the scanner of links:\n{error.stderr}\nAnother compiler is"
    sys.stderr.write(f"{problem} downloaded for the scanner of links (100 MB, once) ...\n")
    try:
        _build_with_packaged(sys.argv[1])
    except subprocess.CalledProcessError as error:
        again = "install gcc, then run the same command again"
        sys.exit(f"{error}\n{error.stderr or ''}\nThe scanner of links was not compiled: {again}")


if __name__ == "__main__":
    main()
