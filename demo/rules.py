"""The robots.txt of the sites, and the forbidden paths: known by construction, without matching rules."""

from __future__ import annotations

from enum import StrEnum

from demo.model import Resource, Target

CRAWL_DELAY_S = 0.05


class RobotsKind(StrEnum):
    """The kind of a site's robots.txt, by site number (`kind_of`)."""

    PLAIN = "plain"
    """`/private/` is forbidden, `/private/open/` is not."""
    CRAWL_DELAY = "crawl_delay"
    """As plain, with a Crawl-delay of `CRAWL_DELAY_S`."""
    MISSING = "missing"
    """404: all is allowed (RFC 9309, 2.3.1.3)."""
    AGENT = "agent"
    """All crawlers are shut out, but a group for our agent forbids `/private/` only."""
    FAILING = "failing"
    """500: nothing is allowed (RFC 9309, 2.3.1.4)."""
    MOVED = "moved"
    """A redirect to the rules (RFC 9309, 2.3.1.2)."""
    WILDCARDS = "wildcards"
    """As plain, and no path that ends in `.cgi` (RFC 9309, 2.2.3)."""


_FIRST = (
    RobotsKind.PLAIN,
    RobotsKind.CRAWL_DELAY,
    RobotsKind.MISSING,
    RobotsKind.AGENT,
    RobotsKind.WILDCARDS,
    RobotsKind.MOVED,
    RobotsKind.FAILING,  # last, since its retries take seconds: smaller webs lack this kind
)
_LATER = (RobotsKind.PLAIN, RobotsKind.AGENT, RobotsKind.MISSING, RobotsKind.WILDCARDS)
_PRIVATE = "Disallow: /private/\nAllow: /private/open/\n"


def kind_of(site: int) -> RobotsKind:
    """Return the kind of a site: each kind once, then kinds without waiting."""
    return _FIRST[site] if site < len(_FIRST) else _LATER[(site - len(_FIRST)) % len(_LATER)]


def is_denied(target: Target) -> bool:
    """Say whether the site's rules forbid the path.

    Sites with a failing robots.txt are not `denied` but unreachable.
    """
    kind = kind_of(target.site)
    if kind in (RobotsKind.MISSING, RobotsKind.FAILING):
        return False
    if kind is RobotsKind.WILDCARDS and target.path.endswith(".cgi"):
        return True
    return target.path.startswith("/private/") and not target.path.startswith("/private/open/")


def robots_resources(site: int, agent: str) -> dict[str, Resource]:
    """Make `/robots.txt` and its redirect target, by path. `agent`: the crawler's token."""
    plain = f"# synthetic web\nUser-agent: *\n{_PRIVATE}"
    match kind_of(site):
        case RobotsKind.MISSING:
            return {}
        case RobotsKind.FAILING:
            return {"/robots.txt": Resource(status=500, mime="text/plain", body="out of order\n")}
        case RobotsKind.MOVED:
            moved = Resource(status=301, mime=None, headers=(("Location", "/rules/robots.txt"),))
            return {
                "/robots.txt": moved,
                "/rules/robots.txt": Resource(mime="text/plain", body=plain),
            }
        case RobotsKind.CRAWL_DELAY:
            text = f"{plain}Crawl-delay: {CRAWL_DELAY_S}\n"
        case RobotsKind.AGENT:
            text = f"User-agent: *\nDisallow: /\n\nUser-agent: {agent}\n{_PRIVATE}"
        case RobotsKind.WILDCARDS:
            text = f"{plain}Disallow: /*.cgi$\n"
        case _:
            text = plain
    return {"/robots.txt": Resource(mime="text/plain; charset=utf-8", body=text)}
