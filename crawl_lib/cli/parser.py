"""The commands and options of `krake`."""

import argparse
import gc
import math
import re
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from functools import cache
from importlib import import_module
from typing import Any, NoReturn

from crawl_lib.findings import PARTS
from crawl_lib.states import Outcome
from crawl_lib.version import VERSION

_EPILOG = """\
without a command: status.
a crawl by hand: inject, crawl, settle; then export, graph link, graph finalize. `krake COMMAND --help` says more.
exit code: 0 done; 1 an error, or a check that found something; 2 wrong words; 130, 143 stopped (Ctrl-C, SIGTERM)"""


_CONFIG = (
    "config file; default: the file of KRAKE_CONFIG_PATH, else <folder>.yml in the working directory, else the only"
    " config in crawls/, config/krake-config.yml"
)


MOVED = {"linker": "graph link", "finalizer": "graph finalize"}
"""The commands of the DAG's stages whose names are no commands."""
_REBUILD = "krake fsck --repair --fast --only keys"
GONE = {"--missing": "krake fsck --repair", "keys dump": _REBUILD, "keys load": _REBUILD}
"""Options and commands that went, each with the command that does the same."""


class _Parser(argparse.ArgumentParser):
    """Names the right place of a `--config` behind the command. The help has colours on a terminal."""

    def _get_formatter(self) -> argparse.HelpFormatter:
        if not (sys.stdout.isatty() and sys.stderr.isatty()):
            return super()._get_formatter()
        from crawl_lib.cli.coloured import coloured  # noqa: PLC0415 - rich, for help alone

        return coloured(
            self.prog, is_raw=self.formatter_class is argparse.RawDescriptionHelpFormatter
        )

    def error(self, message: str) -> NoReturn:
        """Print usage and one line, and exit with code 2.

        On standard error, as argparse does.
        """
        if re.search(r"unrecognized arguments:.* --config\b", message):
            message += "; --config comes before the command: krake --config FILE COMMAND"
        for old, new in GONE.items():
            if re.search(rf"unrecognized arguments:.* {old}\b", message):
                message += f"; run `{new}`"
        word = re.search(r"invalid choice: '([\w-]+)'", message)
        old = f"{self.prog} {word[1]}".removeprefix("krake ") if word else ""
        if old in MOVED:
            message = f"`{old}` is `krake {MOVED[old]}`"
        elif old in GONE:
            message = f"`krake {old}` is gone: keys are rebuilt from segments and queues; run `{GONE[old]}`"
        elif word and (near := _nearest(word[1], re.findall(r"[\w-]+", message[word.end() :]))):
            message = (
                f"{message[: word.end()]}: the nearest choice is {near} (all: {self.prog} --help)"
            )
        super().error(message)


def _nearest(word: str, words: Sequence[str]) -> str:
    """Return the word with the nearest spelling; empty: none is."""
    from difflib import get_close_matches  # noqa: PLC0415 - for a wrong word alone

    return next(iter(get_close_matches(word, words, 1)), "")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"must be a whole number of 1 or more, not {text!r}")
    return int(text)


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = math.nan
    if not 0 <= days < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of days, 0 or more, not {text!r}")
    return days


def _failure(text: str) -> Outcome:
    good = {Outcome.OK, Outcome.REDIRECT, Outcome.NOT_MODIFIED}
    failures = [outcome for outcome in Outcome if outcome not in good]
    if text not in failures:
        raise argparse.ArgumentTypeError(
            f"must be how a fetch fails ({', '.join(failures)}), not {text!r}"
        )
    return Outcome(text)


def _address(text: str) -> str:
    from crawl_lib.config import Pattern  # noqa: PLC0415 - for one command alone

    if not re.fullmatch(Pattern.ADDRESS, text):
        raise argparse.ArgumentTypeError(f"must be host:port, not {text!r}")
    return text


def _hour(text: str) -> datetime:
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d", text):
        raise argparse.ArgumentTypeError(
            f"must be an hour in UTC such as 2026-11-28T07, not {text!r}"
        )
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H").replace(tzinfo=UTC)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be an existing hour, not {text!r}") from error


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"must be a date such as 2026-11-28, not {text!r}"
        ) from error


_Option = tuple[str, dict[str, Any]]


def _option(name: str, text: str, **settings: Any) -> _Option:
    """Make an option (`--name`) or an argument.

    `settings`: as `add_argument` has them.
    """
    return name, {"help": text, **settings}


def _flag(name: str, text: str) -> _Option:
    return _option(name, text, action="store_true")


_JSON = _flag("--json", "the result as JSON, for programs")
_DRY_RUN = _flag("--dry-run", "show the changes without making any")
_YES = _flag("--yes", "do not ask, though no command undoes the change")
_NODE = _option("node", "the node's name", metavar="NODE")
_PAGE = _option(
    "page", "the page's URL, key in hex, or number in the export", metavar="URL|KEY|NODEID"
)
_URL = _option("url", "the URL", metavar="URL")
_WORD = _option("word", "the word", metavar="WORD")
_EXPORT = _option("--export", "name of the export; default: the newest", metavar="NAME")
_LABEL = _option("--label", "ends the folder's name; default: the newest iteration", metavar="NAME")
_WITH_REQUISITES = _flag(
    "--with-requisites", "requisites of pages too: images, style sheets, scripts, fonts"
)
_FOLDERS = _option(
    "--folders", "iterations: names, A..B, or newest N; default: all", nargs="+", metavar="FOLDER"
)
_SEGMENTS = _option("segment", "<folder>/<node>; default: all", nargs="*", metavar="SEGMENT")

_DELETING = {"crawldb filter", "graph finalize", "keys reshard", "retry", "sweep"}
"""Commands that delete without asking: each names its config first, as `require_yes` does for commands that ask."""

_GROUPS = {
    "serve": "answer people over the network",
    "realtime": "the real-time service: tokens, rates, segments and the table",
    "keys": "create, check and move the key tables",
    "segment": "look at segments, and remove pages",
    "crawldb": "the table of all URLs, and the lists of due URLs (frontier.order: crawldb)",
    "linkdb": "links to a page, and their anchor texts",
    "duplicates": "equal and similar pages, mirrors among hosts, repeated blocks",
    "terms": "the pages of a word, with its weight in each (tf-idf)",
    "captures": "where the newest capture of each URL is",
    "index": "the index of pages for `krake search`; one CDXJ file for pywb",
    "commoncrawl": "files in the formats of Common Crawl: index and WET",
    "nodes": "the crawl's nodes; take one out, or in again",
    "graph": "the web graph of an export",
    "score": "scores of the CrawlDb",
}
"""Words that commands begin with."""

_COMMANDS: tuple[tuple[str, str, str, tuple[_Option, ...]], ...] = (
    (
        "init",
        "beginning.init",
        "make a folder for a new crawl, with a config",
        (
            _option("directory", "the folder, named like the crawl", metavar="DIR"),
            _flag(
                "--realtime",
                "for `krake serve realtime`, the service for submitted URLs",
            ),
        ),
    ),
    (
        "inject",
        "crawling.inject",
        "add seeds to the crawl",
        (
            _option(
                "seeds",
                "URLs, files of URLs, or directories of such files",
                nargs="+",
                metavar="SEEDS",
            ),
            _option(
                "--run-id",
                "name of the run; the same run and seeds again change nothing",
                metavar="NAME",
            ),
        ),
    ),
    (
        "crawl",
        "crawling.crawl",
        "crawl: iterations of every node's crawl and commit",
        (
            _option("--iterations", "how many (default 1)", type=_count, default=1, metavar="N"),
            _option(
                "--batch-size", "URLs a node takes; default: batch.size", type=_count, metavar="N"
            ),
            _option(
                "--run-id",
                "name of the run; the name of an unfinished run continues that run",
                metavar="NAME",
            ),
            _option("--node", "only this node's part (on many machines); commit is left out"),
        ),
    ),
    (
        "settle",
        "crawling.settle",
        "complete the queues with the URLs found by the last iteration",
        (
            _option("--node", "only this node"),
            _flag(
                "--all-again",
                "read all seeds and segments again, and find lost URLs: where `krake fsck` says so",
            ),
        ),
    ),
    (
        "forget",
        "segments.forget",
        "make pages new again: the crawler fetches each once a link or seed names it",
        (
            _option("what", "a URL, or all crawled pages of a host", nargs="*", metavar="URL|HOST"),
            _option(
                "--older-than",
                "pages whose newest capture is older; of a host, or of all",
                type=_days,
                metavar="DAYS",
            ),
            _DRY_RUN,
            _JSON,
            _YES,
        ),
    ),
    (
        "retry",
        "segments.retry",
        "list failed pages for the next crawl; with --now, end the waiting",
        (
            _option("url", "with --now: only this URL", nargs="?", metavar="URL"),
            _option(
                "--outcome",
                "only pages with this newest outcome, such as timeout",
                type=_failure,
                metavar="NAME",
            ),
            _option("--host", "only pages of this host", metavar="HOST"),
            _flag(
                "--now",
                "make waiting URLs due with the next take: all, or by URL, host or outcome",
            ),
            _flag("--ignore-retry-after", "with --now: also URLs of hosts with a Retry-After"),
            _DRY_RUN,
            _JSON,
        ),
    ),
    (
        "export",
        "crawling.export",
        "write mapping, content and offsets of the crawled pages",
        (
            _option(
                "--label",
                "name of the export; default: the name of the newest iteration",
                metavar="NAME",
            ),
            _FOLDERS,
            _WITH_REQUISITES,
        ),
    ),
    (
        "text",
        "crawling.text",
        "extract the main text, language and words of each page",
        (_JSON,),
    ),
    (
        "keys create",
        "keys.create",
        "create the key tables on every server",
        (
            _flag("--drop", "drop existing tables: all keys are forgotten"),
            _YES,
        ),
    ),
    (
        "keys check",
        "keys.check_keys",
        "count keys and compare replicas; exit code 1 at a difference",
        (_JSON,),
    ),
    (
        "keys reshard",
        "keys.reshard_keys",
        "servers or replication changed: move the keys; no crawl may run",
        (
            _option(
                "--from",
                "the earlier config, if servers leave",
                dest="old_config",
                metavar="FILE",
            ),
            _DRY_RUN,
            _JSON,
        ),
    ),
    (
        "crawldb stats",
        "table.stats",
        "URLs by status, host and due time; scores",
        (_JSON,),
    ),
    ("crawldb get", "table.get", "the row of a URL", (_URL, _JSON)),
    (
        "crawldb top",
        "table.top",
        "the rows with the highest scores",
        (_option("--count", "how many (default 10)", type=_count, default=10, metavar="N"), _JSON),
    ),
    (
        "crawldb dump",
        "table.dump",
        "write all rows, a line each",
        (
            _option(
                "--format",
                "default: json, an object a line",
                choices=("json", "csv"),
                default="json",
            ),
        ),
    ),
    (
        "crawldb hosts",
        "table.hosts",
        "the record of each host, a line each, by number of URLs",
        (
            _option("--count", "how many; default: all", type=_count, metavar="N"),
            _option(
                "--format",
                "default: json, an object a line",
                choices=("json", "csv"),
                default="json",
            ),
        ),
    ),
    ("crawldb explain", "table.explain", "why the newest list has a URL, or not", (_URL, _JSON)),
    (
        "crawldb init",
        "table.init",
        "make a CrawlDb for a crawl begun with fifo; no way back",
        (_JSON,),
    ),
    (
        "crawldb rebuild",
        "table.make_again",
        "make the table again from all seeds and segments",
        (_JSON,),
    ),
    ("crawldb update", "table.update", "add missing seeds and segments", (_JSON,)),
    (
        "crawldb generate",
        "table.generate",
        "make or find the list of an iteration",
        (
            _option("--run-id", "name of the run", required=True, metavar="NAME"),
            _option(
                "--iteration",
                "number of the iteration in the run (default 1)",
                type=_count,
                default=1,
                metavar="N",
            ),
            _option(
                "--batch-size", "URLs a node takes; default: batch.size", type=_count, metavar="N"
            ),
            _JSON,
        ),
    ),
    (
        "crawldb filter",
        "table.filter_rows",
        "apply changed normalisers and filters to all rows",
        (_JSON,),
    ),
    ("linkdb update", "links.update", "add missing segments", (_JSON,)),
    (
        "linkdb rank",
        "links.rank",
        "rank all targets of links, crawled or not (LinkRank)",
        (_JSON,),
    ),
    ("linkdb get", "links.get", "links to a URL, and their anchor texts", (_URL, _JSON)),
    (
        "linkdb dump",
        "links.dump",
        "write all rows of a table, a line each",
        (
            _option(
                "--table",
                "default: inlinks, by target",
                choices=("inlinks", "outlinks", "ranks"),
                default="inlinks",
            ),
            _option(
                "--format",
                "default: json, an object a line",
                choices=("json", "csv"),
                default="json",
            ),
        ),
    ),
    (
        "duplicates mark",
        "duplicates.mark",
        "of equal pages one stays, in the CrawlDb the others are duplicates",
        (_JSON,),
    ),
    (
        "duplicates near",
        "duplicates.near",
        "make or find the table of pages with nearly the same words",
        (_JSON,),
    ),
    ("duplicates mirrors", "duplicates.mirrors", "hosts with mostly equal texts", (_JSON,)),
    (
        "duplicates templates",
        "duplicates.templates",
        "lines of text on half of a host's pages or more",
        (_JSON,),
    ),
    ("terms update", "terms.update", "make the table of the words of all pages", (_JSON,)),
    ("terms get", "terms.get", "the pages of a word, the highest tf-idf first", (_WORD, _JSON)),
    (
        "terms search",
        "terms.search",
        "the best pages for some words: the sum of tf-idf, times the page's rank",
        (
            _option("words", "the words", nargs="+", metavar="WORD"),
            _option("--count", "how many pages (default 10)", type=_count, default=10, metavar="N"),
            _JSON,
        ),
    ),
    (
        "segment list",
        "reading.list_all",
        "all segments, and the number of pages in each",
        (
            _JSON,
            _option(
                "--files",
                "only the paths of these files of committed segments, one a line, as programs open them",
                choices=("pages", "links", "warc"),
            ),
        ),
    ),
    (
        "segment get",
        "reading.get",
        "all captures of a URL, with the WARC records",
        (
            _URL,
            _SEGMENTS,
            _option(
                "--output", "write the records there, as a WARC file; not there yet", metavar="FILE"
            ),
            _JSON,
        ),
    ),
    (
        "segment dump",
        "reading.dump",
        "write rows of pages or links, a line each",
        (
            _SEGMENTS,
            _option("--table", "default: pages", choices=("pages", "links"), default="pages"),
            _option(
                "--format",
                "default: json, an object a line",
                choices=("json", "csv"),
                default="json",
            ),
        ),
    ),
    (
        "segment drop",
        "segments.drop",
        "remove pages from every segment; the keys stay known",
        (
            _option("page", "a page's URL, or the key in hex", nargs="+", metavar="URL|KEY"),
            _YES,
            _DRY_RUN,
            _JSON,
        ),
    ),
    (
        "segment compact",
        "segments.compact",
        "write segments again without dropped pages",
        (
            _option(
                "segment",
                "<folder>/<node>; default: all with such pages",
                nargs="*",
                metavar="SEGMENT",
            ),
            _YES,
            _DRY_RUN,
            _JSON,
        ),
    ),
    (
        "import",
        "segments.import_archives",
        "make a segment of WARC or ARC files of any writer",
        (
            _option(
                "archive",
                "files, or directories of *.warc[.gz] and *.arc[.gz]",
                nargs="+",
                metavar="WARC",
            ),
            _DRY_RUN,
            _JSON,
        ),
    ),
    (
        "realtime collect",
        "collecting.collect",
        "make a segment of the pages fetched in real time",
        (
            _option("--fetcher", "whose parts; default: live-0", default="live-0", metavar="NAME"),
            _JSON,
        ),
    ),
    (
        "realtime statistics",
        "collecting.statistics",
        "count shared and fetched URLs of an hour by domain, and update hours with late segments",
        (
            _option(
                "--hour",
                "in UTC, such as 2026-11-28T07; default: the last hour",
                type=_hour,
                metavar="HOUR",
            ),
            _option(
                "--page",
                "count nothing; write a page with plots of a date to this file",
                metavar="FILE",
            ),
            _option(
                "--date",
                "of the page, such as 2026-11-28; default: the newest",
                type=_date,
                metavar="DATE",
            ),
            _JSON,
        ),
    ),
    (
        "realtime fill",
        "collecting.fill",
        "make a lost table of the real-time service again, from segments",
        (_JSON,),
    ),
    (
        "captures update",
        "indexing.update_places",
        "add segments, for fast look-ups of URLs",
        (_JSON,),
    ),
    (
        "index update",
        "indexing.update",
        "make a version of the index with the current pages",
        (
            _flag(
                "--purge",
                "make the whole index again, and delete older versions: no words of deleted pages are left",
            ),
            _JSON,
        ),
    ),
    (
        "index push",
        "indexing.push",
        "bring OpenSearch (push.url) to the newest index: all pages, or changes",
        (_JSON,),
    ),
    (
        "index check",
        "indexing.check",
        "compare all files of the index with the noted digests; exit code 1 at a difference",
        (_JSON,),
    ),
    (
        "index stats",
        "indexing.stats",
        "counts of the newest index: pages, words, omitted pages",
        (_JSON,),
    ),
    (
        "index cdxj",
        "segments.index_cdxj",
        "merge the indexes of all segments into a single file, for pywb",
        (
            _option(
                "--output",
                "on this machine, may exist; default: index.cdxj in the crawl",
                metavar="FILE",
            ),
            _JSON,
        ),
    ),
    (
        "commoncrawl index",
        "indexing.commoncrawl_index",
        "make or find Common Crawl's columnar index of the crawl",
        (_LABEL, _FOLDERS, _WITH_REQUISITES, _JSON),
    ),
    (
        "commoncrawl wet",
        "indexing.commoncrawl_wet",
        "make or find WET files of the texts of pages",
        (_LABEL, _FOLDERS, _JSON),
    ),
    (
        "nodes list",
        "nodes.list_nodes",
        "each node's share of hosts, queue, and last settled iteration",
        (_JSON,),
    ),
    (
        "nodes retire",
        "nodes.retire",
        "hand the queue of a node outside the config to the remaining nodes, after they settled",
        (
            _NODE,
            _option(
                "--dir",
                "a copy of the node's directory; default: its place here",
                metavar="DIRECTORY",
            ),
            _flag("--lost", "the disk is lost: find the node's URLs on the DFS"),
            _DRY_RUN,
            _YES,
        ),
    ),
    (
        "nodes restart",
        "repairing.restart",
        "begin an empty queue where the node's own is gone; all is found again",
        (_NODE, _DRY_RUN),
    ),
    (
        "nodes admit",
        "nodes.admit",
        "let a node take part again after `nodes retire --lost`, with an empty directory",
        (_NODE, _DRY_RUN),
    ),
    (
        "sweep",
        "repairing.sweep",
        "delete the store's leftovers of killed attempts",
        (
            _flag(
                "--damaged",
                "also damaged segments, seeds and lists set aside beside whole copies",
            ),
            _DRY_RUN,
            _JSON,
        ),
    ),
    (
        "fsck",
        "repairing.fsck",
        "check or repair queues, folders, segments, key tables and exports",
        (
            _flag("--repair", "make all repairs without a choice; delete nothing"),
            _option("--only", "repair only this part; the sources must be whole", choices=PARTS),
            _flag("--fast", "sizes, counts and structure only; else every byte is read"),
            _option("--node", argparse.SUPPRESS),
            _flag("--dry-run", "no trace at all, not even in the nodes' locks"),
            _JSON,
        ),
    ),
    (
        "status",
        "looking.status",
        "iterations, outcomes, what runs, queues, keys, outputs",
        (
            _flag("--watch", "again every 2 s: rate, ETA, bytes, hosts"),
            _option(
                "--last",
                "only the last N iterations; default: 10, with --json all",
                type=_count,
                metavar="N",
            ),
            _JSON,
        ),
    ),
    (
        "show",
        "asking.show",
        "a page and its links",
        (_PAGE, _EXPORT, _JSON),
    ),
    (
        "cat",
        "asking.cat",
        "the answer of a page: headers, and the body without codings",
        (_PAGE, _flag("--body", "the body alone"), _EXPORT),
    ),
    (
        "search",
        "searching.search",
        "search the pages of the index",
        (
            _option(
                "query", "words, and the operators of docs/search.md", nargs="+", metavar="QUERY"
            ),
            _option("--page", "which ten results (default 1)", type=_count, default=1, metavar="N"),
            _flag("--broader", "add words of the best pages to the query"),
            _flag("--explain", "show the parts of each score"),
            _flag("--all", "every page with all words, a line each, unranked"),
            _JSON,
        ),
    ),
    (
        "serve search",
        "serving.search",
        "show the search page to browsers, until Ctrl-C; no login (search.listen)",
        (),
    ),
    (
        "serve realtime",
        "serving.realtime",
        "fetch URLs submitted by services, until Ctrl-C (realtime.listen)",
        (),
    ),
    (
        "realtime fetcher",
        "remote.fetcher",
        "fetch for a service on another machine, until Ctrl-C; needs no config (docs/realtime-cluster.md)",
        (
            _option(
                "--listen",
                "where schedulers connect to",
                required=True,
                type=_address,
                metavar="HOST:PORT",
            ),
            _option(
                "--name",
                "the name of this fetcher in realtime.fetchers",
                required=True,
                metavar="NAME",
            ),
            _option(
                "--directory",
                "for fetched pages and records of hosts",
                required=True,
                metavar="DIR",
            ),
            _option("--certificates", "with ca.pem and NAME.pem", required=True, metavar="DIR"),
        ),
    ),
    (
        "realtime certificates",
        "remote.certificates",
        "make certificates of scheduler and fetchers, and renew any with less than 30 days left",
        (_JSON,),
    ),
    (
        "realtime rate",
        "realtime.rate",
        "list the operators' rates of domains, or set a rate: running services follow within 2 s",
        (
            _option("domain", "the domain, with all names below it", nargs="?", metavar="DOMAIN"),
            _option("--delay-s", "seconds between two requests to a host", type=float, metavar="S"),
            _option(
                "--connections", "at once, to a host without a delay", type=_count, metavar="N"
            ),
            _flag("--block", "ask the hosts for nothing"),
            _flag("--remove", "go by the config again"),
            _JSON,
        ),
    ),
    (
        "realtime tokens",
        "realtime.tokens",
        "list, add or remove tokens of the real-time service",
        (
            _option("--add", "add a token, and print the token once", metavar="NAME"),
            _option(
                "--rights",
                "of the new token (default: submit read)",
                nargs="+",
                choices=("submit", "read", "fetch", "metrics", "admin"),
                default=("submit", "read"),
            ),
            _option(
                "--urls-per-s",
                "submissions of the new token; default: realtime.urls_per_s",
                type=float,
                metavar="N",
            ),
            _option("--remove", "remove a token", metavar="NAME"),
            _JSON,
        ),
    ),
    (
        "why",
        "asking.why",
        "why a URL was crawled, waits, or is not crawled",
        (
            _URL,
            _flag(
                "--all-links", "search the links of all iterations, with a table of captures too"
            ),
            _JSON,
        ),
    ),
    (
        "check",
        "asking.check",
        "scope, rules and robots.txt of a URL, and a test fetch",
        (_URL, _JSON),
    ),
    (
        "shell",
        "shell.shell",
        "open a Python shell with a page (from a test fetch), the page's links and verdicts",
        (_URL,),
    ),
    (
        "report",
        "looking.report",
        "plots of the crawl and an export, as an HTML page",
        (
            _option(
                "file",
                "may exist (default krake-report.html)",
                nargs="?",
                default="krake-report.html",
                metavar="FILE",
            ),
            _EXPORT,
        ),
    ),
    (
        "graph link",
        "crawling.link",
        "turn links into arcs between the pages of an export",
        (_EXPORT,),
    ),
    ("graph finalize", "crawling.finalize", "write the web graph of an export", (_EXPORT,)),
    (
        "graph export",
        "looking.graph_export",
        "write the arcs as a file for other programs",
        (
            _option(
                "file",
                "on this machine; not there yet; of commoncrawl and bv the files' names begin so",
                metavar="FILE",
            ),
            _option(
                "--format",
                "default: tsv; commoncrawl: vertices, edges and ranks; bv: for WebGraph, both ways",
                choices=("tsv", "graphml", "npz", "commoncrawl", "bv"),
                default="tsv",
            ),
            _option(
                "--graph", "default: pages", choices=("pages", "hosts", "domains"), default="pages"
            ),
            _option(
                "--of",
                "default: export; links: all ends of links, crawled or not (of commoncrawl and bv)",
                choices=("export", "links"),
                default="export",
            ),
            _EXPORT,
            _JSON,
        ),
    ),
    (
        "graph rank",
        "crawling.rank",
        "rank pages, hosts or domains by the links between (PageRank)",
        (
            _option(
                "--graph", "default: pages", choices=("pages", "hosts", "domains"), default="pages"
            ),
            _EXPORT,
            _JSON,
        ),
    ),
    ("graph stats", "looking.graph_stats", "nodes, arcs, degrees", (_EXPORT, _JSON)),
    (
        "score update",
        "crawling.score",
        "make ranks the scores of the CrawlDb: ranks of `scores.of`, or of an export",
        (_EXPORT, _JSON),
    ),
    (
        "config",
        "looking.config",
        "check the config, this machine and the servers; print the options in force",
        (),
    ),
)
"""Each command: words, function, help text, options."""


def command_of(words: Sequence[str]) -> str:
    """Return the first word of a command line's command.

    "" where only the whole parser can tell.
    """
    rest = iter(words)
    for word in rest:
        if word == "--config":
            next(rest, None)
        elif not word.startswith("--config="):
            return "" if word.startswith("-") else word
    return ""


@cache
def build_parser(first: str = "") -> argparse.ArgumentParser:
    """Build the parser.

    `arguments.run(arguments)` carries the command out and returns its exit code.

    `first`: the first word of a command (`command_of`). Commands that begin with another word are left out, which saves
    nine tenths of the time. A word that begins no command leaves none out.
    """
    firsts = {words.partition(" ")[0] for words, *_ in _COMMANDS}
    wanted = {first, "status"} if first in firsts else firsts
    parser = _Parser(
        prog="krake",
        description="A batch web crawler in rounds.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", help=_CONFIG)
    parser.add_argument("--version", action="version", version=f"krake {VERSION}")
    below = {"": parser.add_subparsers(title="commands", metavar="COMMAND")}
    for words, function, text, options in _COMMANDS:
        if words.partition(" ")[0] not in wanted:
            continue
        group, _, name = words.rpartition(" ")
        if group not in below:
            made = below[""].add_parser(
                group, help=_GROUPS[group], description=f"{_GROUPS[group].capitalize()}."
            )
            below[group] = made.add_subparsers(metavar="ACTION", required=True)
        command = below[group].add_parser(
            name, help=text, description=f"{text[0].upper()}{text[1:]}."
        )
        command.set_defaults(run=_late(function), names_config=words in _DELETING)
        for option, settings in options:
            command.add_argument(option, **settings)
    defaults = below[""].choices["status"].parse_args([])
    parser.set_defaults(**{**vars(defaults), "names_config": True})
    return parser


def _late(words: str) -> Callable[[argparse.Namespace], int]:
    """Return a function that loads its module when called.

    Some modules cost a second.
    """

    def run(arguments: argparse.Namespace) -> int:
        module, _, name = words.partition(".")
        function = getattr(import_module(f"crawl_lib.cli.{module}"), name)
        if not gc.isenabled():  # see `cli.krake`
            gc.freeze()
            gc.enable()
        return int(function(arguments))

    return run
