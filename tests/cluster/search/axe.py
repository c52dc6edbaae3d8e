"""axe-core finds what people with a screen reader or poor sight cannot use; npm compares a pinned hash."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NPM = Path(__file__).parent / "npm"


def axe_source() -> str:
    """Install axe-core, and return its source."""
    if shutil.which("npm") is None:
        pytest.skip("npm, which brings axe-core")
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(NPM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return (NPM / "node_modules/axe-core/axe.min.js").read_text()


def violations(frame: Any, source: str) -> dict[str, list[str]]:
    """Return what axe finds in a page or a frame: by rule, the elements that break the rule."""
    frame.evaluate(source)
    result = frame.evaluate("axe.run(document, {iframes: false, resultTypes: ['violations']})")
    return {
        one["id"]: [node["html"][:200] for node in one["nodes"]] for one in result["violations"]
    }
