"""A synthetic web: many small sites on loopback, made from a seed number, whose truth is known.

How it flows: `SynthWeb` (`web`) is a value, a seed and sizes. From it `ordinary` and `special` make each site's
resources: the link targets are chosen first and spelled in HTML afterwards (`spelling`, `render`), so the truth never
has to parse or resolve anything. `server` answers requests from that model in a process of its own and logs every
request; `Serving` starts and stops it, `RequestLog` reads the log. `truth` walks the model in rounds, as a crawl
would, and gives the URLs visited with their outcomes, the contents' digests, and the arcs of the web graph.

Nothing here uses `crawl_lib.urls`, `parse` or `fetch`: a mistake there must not repeat itself in the truth.
Nothing is kept on disk but the log; after a crash, start it again. The same seed and sizes are the same web; only the
port differs from run to run (every site has its own loopback address, all share one port).
"""

from demo.answers import AGAIN_PATH
from demo.log import LoggedRequest, RequestLog
from demo.model import Link, Resource, Target
from demo.serving import ServerProcess, Serving
from demo.truth import Truth, TruthOptions, Visit
from demo.web import SynthWeb

__all__ = [
    "AGAIN_PATH",
    "Link",
    "LoggedRequest",
    "RequestLog",
    "Resource",
    "ServerProcess",
    "Serving",
    "SynthWeb",
    "Target",
    "Truth",
    "TruthOptions",
    "Visit",
]
