"""`make compose-env`: the passwords and keys of `docker-compose.yml`, random, in a file that only its owner reads.

Run as a file by any Python 3 with the standard library alone: users of containers may have no environment here.
"""

from __future__ import annotations

import base64
import os
import secrets
import sys
from pathlib import Path

WEB_PORT, SEARCH_PORT, REALTIME_PORT = 8080, 8090, 8095
"""Ports of Airflow's pages, the search page and the real-time service, on 127.0.0.1. Users may change these lines."""


def values() -> dict[str, str]:
    """Return all variables of `docker-compose.yml`, in hex digits, which need no quotes anywhere."""
    return {
        "KRAKE_WEB_PORT": str(WEB_PORT),
        "KRAKE_SEARCH_PORT": str(SEARCH_PORT),
        "KRAKE_REALTIME_PORT": str(REALTIME_PORT),
        "KRAKE_WEB_PASSWORD": secrets.token_hex(12),
        "KRAKE_KEY_STORAGE_PASSWORD": secrets.token_hex(24),
        "AIRFLOW_DB_PASSWORD": secrets.token_hex(24),
        "AIRFLOW_JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW_API_SECRET": secrets.token_hex(32),
        # https://github.com/fernet/spec: 32 bytes in URL-safe base64
        "AIRFLOW_FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode("ascii"),
    }


def lacking_ports(text: str) -> list[str]:
    """Return the ports that a file of an older version lacks."""
    return [name for name in values() if name.endswith("_PORT") and f"{name}=" not in text]


def write(path: Path) -> None:
    """Write the file with mode 0600, or leave no file. Raises FileExistsError if the file exists: the databases
    know the old passwords.
    """
    text = "".join(f"{name}={value}\n" for name, value in values().items())
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            os.fchmod(descriptor, 0o600)  # whatever the umask
            file.write(text)
    except OSError:
        path.unlink()  # half a file would pass for the databases' passwords
        raise


def main(argv: list[str]) -> int:
    """Run `compose_env.py FILE`; return the exit code."""
    path = Path(argv[0])
    try:
        write(path)
    except FileExistsError:
        sys.stderr.write(
            f"{path} exists already and is kept: the volumes hold databases with its passwords."
            " To begin again: `docker compose down -v` (deletes the crawl), then delete the file\n"
        )
        for name in lacking_ports(path.read_text(encoding="ascii", errors="replace")):
            sys.stderr.write(f"{path}: it lacks {name}: add the line {name}={values()[name]}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"{path}: cannot be written: {error.strerror}\n")
        return 1
    sys.stdout.write(f"{path}: passwords and keys written; next: docker compose up -d\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
