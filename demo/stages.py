"""The page of `make realtime`: the stages of a URL as HTML. Text of pages is shown as text, and is never a link."""

from __future__ import annotations

import base64
import hashlib
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from crawl_lib.realtime.answers import Decision, Page

TEMPLATES = Path(__file__).parent / "templates"
SCRIPT = (TEMPLATES / "realtime.js").read_text(encoding="utf-8").strip()
STYLE = (TEMPLATES / "realtime.css").read_text(encoding="utf-8").strip()
PICTURE_S = 20.0
"""How long the page waits for a probe's facts about the picture."""
DECISIONS = {
    "new": "new: the URL is fetched",
    "waiting": "waiting: a fetch is under way already",
    "known": "known: the document is young enough, so nothing is fetched",
    "refused": "refused by the rule",
    "busy": "busy: the host has too many URLs",
    "unavailable": "unavailable: the table of this URL cannot be reached",
}


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; script-src {_hash(SCRIPT)}; style-src {_hash(STYLE)}; connect-src 'self';"
        " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send "Origin: null" with the page's own form
}


@dataclass
class Watched:
    """A submitted URL. `began_ms`: POSIX time of the submission; `took_ms`: time until the decision."""

    decision: Decision | None = None
    began_ms: float = 0.0
    took_ms: float = 0.0
    problem: str = ""
    page: Page | None = None

    @property
    def is_open(self) -> bool:
        """Whether the page may change soon."""
        if self.page is None or self.problem:
            return False
        document = self.page.document
        is_probed = document is None or "image" not in document.facts or document.image is not None
        return self.page.state == "waiting" or not (
            is_probed or time.time() - self.page.fetched_ms / 1000 > PICTURE_S
        )


class Stage(NamedTuple):
    """A line of the page. `state`: done, now, later or failed. `at`: time since the submission."""

    name: str
    state: str
    text: str
    at: str = ""


def stages_of(watched: Watched) -> list[Stage]:
    """Return the stages of a URL: decision, each request, document, picture."""
    found = [_decided(watched)] if watched.decision else []
    page = watched.page
    if page is None:
        return found
    document = page.document
    if document is None or page.state == "waiting":
        wait_s = (watched.decision.wait_s if watched.decision else None) or 0
        return [
            *found,
            Stage("Fetch", "now", f"waits for its host, about {wait_s:g} s, or for the answer"),
        ]
    for number, hop in enumerate(document.hops, 1):
        said = hop.outcome if hop.status is None else f"{hop.status} {hop.outcome}"
        state = "done" if hop.outcome in ("ok", "redirect", "not_modified") else "failed"
        text = f"{hop.url}: {said}, in {hop.duration_ms} ms"
        found.append(Stage(f"Request {number}", state, text, _since(watched, hop.time_ms)))
    state = "done" if document.outcome in ("ok", "not_modified") else "failed"
    said = " ".join(filter(None, (document.outcome, document.error)))
    found.append(Stage("Document", state, said, _since(watched, page.fetched_ms)))
    return [*found, *_pictured(watched, document.facts, document.image)]


def _decided(watched: Watched) -> Stage:
    decision = watched.decision
    assert decision is not None
    text = " ".join(
        filter(None, (DECISIONS.get(decision.decision, decision.decision), decision.rule))
    )
    state = "failed" if decision.decision in ("refused", "busy", "unavailable") else "done"
    return Stage("Decision", state, text, f"+{watched.took_ms:.0f} ms")


def _pictured(watched: Watched, facts: dict[str, Any], image: dict[str, Any] | None) -> list[Stage]:
    if "image" not in facts:
        return []
    if image is None:
        return [
            Stage(
                "Picture",
                "now" if watched.is_open else "later",
                "the picture's first 64 KB are asked for",
            )
        ]
    return [Stage("Picture", "done", ", ".join(f"{name} {value}" for name, value in image.items()))]


def _since(watched: Watched, time_ms: float) -> str:
    """Return a time since the submission; of an earlier time, its age."""
    since_ms = time_ms - watched.began_ms
    if watched.began_ms and since_ms > -1000:
        return f"+{max(0.0, since_ms):.0f} ms"
    return f"{max(0.0, time.time() - time_ms / 1000):.0f} s ago"


def shown(
    url: str, watched: Watched | None, examples: list[tuple[str, str]], *, is_part: bool
) -> Response:
    """Return the page, or as a part the stages alone.

    The header `More` says whether the script looks again.
    """
    document = watched.page.document if watched and watched.page else None
    html = _template().render(
        url=url,
        watched=watched,
        stages=stages_of(watched) if watched else [],
        facts=facts_of(document.facts) if document else [],
        examples=examples,
        is_part=is_part,
        script=SCRIPT,
        style=STYLE,
    )
    more = "1" if watched is not None and watched.is_open else "0"
    return HTMLResponse(html, headers={**HEADERS, "More": more})


def facts_of(facts: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return name, value and source of each fact."""
    sources = facts.get("sources", {})
    return [
        (name, str(value), str(sources.get(name, "")))
        for name, value in facts.items()
        if name != "sources"
    ]


@cache
def _template() -> Any:
    loader = FileSystemLoader(TEMPLATES)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("realtime.html")
