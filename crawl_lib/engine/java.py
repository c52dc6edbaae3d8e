"""The Java that Spark runs in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from crawl_lib.errors import ConfigError

LEAST_VERSION = 17
NEEDED = f"batch.engine: spark needs Java {LEAST_VERSION} or newer"
REMEDY = "install one and set JAVA_HOME, or set batch.engine: duckdb"


def check_java() -> None:
    """Raises ConfigError where there is no Java, or an older one than Spark takes."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        raise ConfigError(f"{NEEDED}: none is in {f'JAVA_HOME ({home})' if home else 'PATH'}; {REMEDY}")
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{NEEDED}: {java} cannot be run: {error}; {REMEDY}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    if found is None or int(found[1]) < LEAST_VERSION:
        version = found[1] if found else "of an unknown version"
        raise ConfigError(f"{NEEDED}: {java} is {version}; {REMEDY}")
