"""Krake's own plug-ins: breadth first, depth, OPIC, and the ranks that `krake score update` writes.

OPIC: S. Abiteboul, M. Preda, G. Cobena: Adaptive on-line page importance computation (WWW 2003), in the simple form of
Nutch's scoring-opic. Depth: Nutch's scoring-depth, whose depth of a seed is 1 where ours is 0; so is its maximum.
"""

from crawl_lib.config import ScoringConfig
from crawl_lib.scoring.plugin import Plugin


class Breadth(Plugin):
    """Few links from a seed first."""

    name = "breadth"
    sort_value = "sort_value / (1 + depth)"


class Depth(Plugin):
    """Few links from a seed first, and no links of pages that are `scoring.max_depth`, or the seed's own, from it."""

    name = "depth"

    def __init__(self, config: ScoringConfig) -> None:
        super().__init__(config)
        self.distribute = f"case when depth < coalesce(max_depth, {config.max_depth}) then given end"
        self.sort_value = f"sort_value * (1 + {config.max_depth} - depth)"


class Opic(Plugin):
    """A page gives its score to what it links to, in equal parts, once for each content that it has; or each time it is
    fetched (`scoring.opic_gives: always`, as in Nutch), by which scores of what is visited often grow without end."""

    name = "opic"
    initial = "0"
    update = "score + given"
    sort_value = "sort_value * score"
    index_boost = "boost * sqrt(greatest(score, 0))"

    def __init__(self, config: ScoringConfig) -> None:
        super().__init__(config)
        gives = "true" if config.opic_gives == "always" else "is_changed"
        self.distribute = f"given + case when {gives} then score / outlinks else 0 end"


class LinkRank(Plugin):
    """The score is a rank of the whole graph: new URLs have none until the next one, and links hand nothing on."""

    name = "linkrank"
    initial = "0"
    sort_value = "sort_value * score"
    index_boost = "boost * score"


class PageRank(LinkRank):
    """The same of PageRank: only who wrote the scores differs."""

    name = "pagerank"


BUILT_IN = {kind.name: kind for kind in (Breadth, Depth, Opic, LinkRank, PageRank)}
