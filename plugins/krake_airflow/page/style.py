"""The style sheet, the script, and headers that restrict the browser."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from crawl_lib.plots import DARK, LIGHT
from crawl_lib.plots import STYLE as PLOT_STYLE

TEMPLATES = Path(__file__).parent / "templates"
_COLOURS = ("text", "back", "card", "faint", "line", "rule", "link", "good", "warn", "bad")
_LIGHT = (
    "#1d2733",
    "#fff",
    "#f7f9fb",
    "#56616c",
    "#e3e8ed",
    "#8793a0",
    "#1b5e91",
    "#2f8f4e",
    "#b7791f",
    "#b83232",
)
_DARK = (
    "#e3e8ed",
    "#14181d",
    "#1b2127",
    "#a7b2bc",
    "#2d353e",
    "#6d7985",
    "#7cbbe6",
    "#5fc083",
    "#e0ac4c",
    "#ef7b7b",
)


def _declared(values: tuple[str, ...]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in zip(_COLOURS, values, strict=True))


STYLE = f"""
:root {{ color-scheme: light; {_declared(_LIGHT)} {LIGHT} }}
:root[data-theme=dark] {{ color-scheme: dark; {_declared(_DARK)} {DARK} }}
{PLOT_STYLE}
{(TEMPLATES / "style.css").read_text(encoding="utf-8")}"""
SCRIPT = (TEMPLATES / "refresh.js").read_text(encoding="utf-8").strip()
"""Follows Airflow's switch of light and dark, opens Airflow's links outside of the frame, and fetches changed parts."""
_SCRIPT_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; script-src 'sha256-{_SCRIPT_HASH}'; style-src 'unsafe-inline'; connect-src 'self';"
        " form-action 'self'; frame-ancestors 'self'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "same-origin",
}
"""The headers of every answer, errors too."""
