"""Scoring: plug-ins that say what a URL matters, chained in the order of `scoring.plugins`.

`plugin` says what a plug-in is, and which moments it may choose from; `builtin` has Krake's own, `loading` finds those
that others have installed, and looks at all of them before a stage begins. `chain` is what stages use; `layers` makes
nested expressions of it, which the engine computes, and `trial` computes them for a few rows without one.
"""

from crawl_lib.scoring.chain import Scoring
from crawl_lib.scoring.plugin import Plugin
