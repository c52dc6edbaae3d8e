"""A synthetic web: many small sites on loopback, made from a seed number, with a known truth.

How data flows: `SynthWeb` (`web`) is a value: a seed and sizes. From this value, `ordinary` and `special` make each
site's resources (the model). They choose the targets of links first and spell these in HTML afterwards (`spelling`,
`render`), so the truth needs no parser and resolves no link. `server` answers requests from the model in a process of
its own, and logs every request. `Serving` starts and stops the server; `RequestLog` reads the log. `truth` walks the
model in rounds, as a crawl would, and gives the visited URLs with their outcomes, the digests of contents, and the arcs
of the web graph.

The package does not use `crawl_lib.urls`, `parse` or `fetch`: a mistake there must not repeat itself in the truth. Only
the log is kept on disk; after a crash, start the server again. The same seed and sizes give the same web; only the port
changes from run to run (every site has its own loopback address, and all sites share one port).
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
