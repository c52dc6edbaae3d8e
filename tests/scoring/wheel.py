"""The example of docs/scoring.md as a wheel of its own, installed into a folder."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path

import pytest

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "scoring.md").read_text()


def example(language: str) -> str:
    """The one code block of a language."""
    [code] = re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return code


def make_wheel(folder: Path) -> Path:
    """A wheel of the module and its entry point, as PEP 427 has them; building one takes network and seconds."""
    entries = re.findall(r"^(\w+ = )\"(.*)\"$", example("toml"), re.MULTILINE)
    info = "krake_titled-1.0.dist-info"
    files = {
        "krake_titled.py": example("python"),
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: krake-titled\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[krake.scoring]\n"
        + "".join(f"{name}{value}\n" for name, value in entries),
    }
    digests = {
        name: urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=")
        for name, text in files.items()
    }
    record = "".join(
        f"{name},sha256={digests[name].decode()},{len(text)}\n" for name, text in files.items()
    )
    path = folder / "krake_titled-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            wheel.writestr(name, text)
    return path


def give_wheel(site: Path, patch: pytest.MonkeyPatch) -> None:
    """Install it to a folder that this process, and those it starts, look into."""
    uv = Path(sys.executable).with_name("uv")
    install = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-cache",
        "--no-deps",
        "--target",
        site,
    ]
    subprocess.run([*install, make_wheel(site.parent)], check=True)
    patch.syspath_prepend(str(site))
    patch.setenv("PYTHONPATH", str(site))
    patch.delitem(sys.modules, "krake_titled", raising=False)
    importlib.invalidate_caches()
