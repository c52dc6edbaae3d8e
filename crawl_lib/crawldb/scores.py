"""Scores in an update, where plug-ins say what seeds, links and visits bring (`crawl_lib.scoring`).

Without plug-ins a new URL has the highest score of its linking pages. With them `injected` is asked of seeds,
`distribute` of each page with new links (what each hands on; null: they lead nowhere), `initial` of new URLs, and
`update` of what was visited, or is linked to, with the sum of what it was given.
"""

from dataclasses import dataclass

from crawl_lib.crawldb.inputs import SEEDS_SCHEMA
from crawl_lib.scoring import Scoring
from crawl_lib.versions import VersionWork, columns

_SHARES, _SCORES = (
    columns("key bytes, segment int32, given score"),
    columns("key bytes, score score"),
)


@dataclass(frozen=True)
class Scores:
    """The scores of one update."""

    work: VersionWork
    scoring: Scoring

    @property
    def makes_scores(self) -> bool:
        """Whether plug-ins say what becomes of scores."""
        return bool(self.scoring.wanting("initial", "update"))

    @property
    def looks_at_links(self) -> bool:
        """Whether they need to know whose links are new."""
        return self.makes_scores or bool(self.scoring.wanting("distribute"))

    def inject(self) -> None:
        """Set the first scores of seeds.

        Makes `all_seeds` of `seeds_given`.
        """
        if self.scoring.wanting("injected"):
            self.work.engine.view("seeds_seen", "scoring/injected")
            self.scoring.apply(self.work, "injected", "seeds_seen", "all_seeds", SEEDS_SCHEMA)
        else:
            self.work.engine.define("all_seeds", "select * from seeds_given")

    def share(self) -> None:
        """Ask plug-ins what each page hands on: `shares`, of `sources_given` and `hops_given`."""
        if self.looks_at_links:
            self.work.engine.view("changes", "scoring/changes")
            self.work.engine.view("givers", "scoring/givers")
            self.scoring.apply(self.work, "distribute", "givers", "shares", _SHARES)

    def hand_on(self) -> None:
        """Make `sources`, `hops` and `dropping` for the links of pages.

        `dropping` has the pages whose links count for nothing.
        """
        engine = self.work.engine
        if not self.looks_at_links:
            engine.values("dropping", columns("key bytes").empty_table())
            for name in ("sources", "hops"):
                engine.define(name, f"select * from {name}_given")
            return
        for name in ("sources", "hops", "dropping"):
            engine.view(name, f"scoring/{name}")

    def judge(self) -> None:
        """Make the scores of new, linked and visited URLs.

        Without plug-ins there are none, and the built-in rule decides.
        """
        engine = self.work.engine
        if not self.makes_scores:
            engine.values("scores", _SCORES.empty_table())
            return
        engine.view("touched", "scoring/touched")
        if self.scoring.wanting("initial"):
            engine.view("new", "scoring/new")
            self.scoring.apply(self.work, "initial", "new", "initials", _SCORES)
        else:
            engine.values("initials", _SCORES.empty_table())
        engine.view("updated", "scoring/updated")
        self.scoring.apply(self.work, "update", "updated", "scores", _SCORES)
