"""Which commands and options `krake` has."""

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
    "config file; default: the first of what KRAKE_CONFIG_PATH names, <folder>.yml in the working directory, the one"
    " config in crawls/ (of several none), config/krake-config.yml"
)


MOVED = {"linker": "graph link", "finalizer": "graph finalize"}
"""The commands of the DAG's stages whose names are no commands."""
GONE = {"--missing": "krake fsck --repair"}
"""Options that went, each with the command that does the same."""


class _Parser(argparse.ArgumentParser):
    """Says of `--config` behind the command where it belongs. Its help has colours on a terminal."""

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
        elif word and (near := _nearest(word[1], re.findall(r"[\w-]+", message[word.end() :]))):
            message = f"{message[: word.end()]}: the nearest one is {near} (all of them: {self.prog} --help)"
        super().error(message)


def _nearest(word: str, words: Sequence[str]) -> str:
    """Return the word that is spelt like this one; empty: none is."""
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
        raise argparse.ArgumentTypeError(f"must be an hour that exists, not {text!r}") from error


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
_DRY_RUN = _flag("--dry-run", "say what would be done, and change nothing")
_YES = _flag("--yes", "do not ask, though no other command undoes it")
_NODE = _option("node", "the node's name", metavar="NODE")
_BACKUP = _option("file", "the backup, on this machine", metavar="FILE")
_PAGE = _option(
    "page", "its URL, its key in hex, or its number in the export", metavar="URL|KEY|NODEID"
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
"""Commands that delete without asking: each names its config first, as `require_yes` does for those that ask."""

_GROUPS = {
    "serve": "answer people over the network",
    "realtime": "the real-time service: who may ask it, segments of what it fetched, and its table",
    "keys": "create, check and move the key tables",
    "segment": "look at segments, and take pages out of them",
    "crawldb": "the table of all URLs, and the lists of what is due (frontier.order: crawldb)",
    "linkdb": "who links to a page, and with which words",
    "duplicates": "pages that say the same, hosts that mirror others, blocks that repeat",
    "terms": "which pages have a word, and how much it says about them (tf-idf)",
    "captures": "where the newest capture of each URL is",
    "index": "the index of pages for `krake search`; one CDXJ file for pywb",
    "commoncrawl": "files as Common Crawl has them: its index, and WET files",
    "nodes": "the crawl's nodes; take one out, or in again",
    "graph": "the web graph of an export",
    "score": "scores of the CrawlDb",
}
"""Words that commands begin with."""

_COMMANDS: tuple[tuple[str, str, str, tuple[_Option, ...]], ...] = (
    (
        "init",
        "beginning.init",
        "make a folder for a new crawl, with a config whose paths are its own",
        (
            _option("directory", "the folder; its name is the crawl's", metavar="DIR"),
            _flag(
                "--realtime",
                "for `krake serve realtime`, which fetches URLs as services submit them",
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
                "URLs, or a file of them, or a directory of such files",
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
                "name of the run; give it again to go on with an unfinished one",
                metavar="NAME",
            ),
            _option("--node", "only this node's part (on many machines); commit is left out"),
        ),
    ),
    (
        "settle",
        "crawling.settle",
        "take in what the last iteration found, so that queues are complete",
        (
            _option("--node", "only this node"),
            _flag("--all-again", "read every segment again: where `krake fsck` says so"),
        ),
    ),
    (
        "forget",
        "segments.forget",
        "make pages new again, so that they are crawled when found or injected",
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
        "list pages that failed, so that the next crawl fetches them once more; with --now, end the waiting",
        (
            _option("url", "with --now: only this URL", nargs="?", metavar="URL"),
            _option(
                "--outcome",
                "how their newest try ended, such as timeout",
                type=_failure,
                metavar="NAME",
            ),
            _option("--host", "only pages of this host", metavar="HOST"),
            _flag(
                "--now",
                "what waits is due with the next take: all, or a URL, or those of a host or an outcome",
            ),
            _flag(
                "--ignore-retry-after", "with --now: also what waits because its host asked for it"
            ),
            _DRY_RUN,
            _JSON,
        ),
    ),
    (
        "export",
        "crawling.export",
        "write mapping, content and offsets of the crawled pages",
        (
            _option("--label", "name of the export; default: its newest iteration", metavar="NAME"),
            _FOLDERS,
            _WITH_REQUISITES,
        ),
    ),
    (
        "text",
        "crawling.text",
        "read what each page says: its main text, language and words",
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
        "count keys and compare replicas; exit code 1 if they differ",
        (_JSON,),
    ),
    (
        "keys reshard",
        "keys.reshard_keys",
        "servers or replication changed: move the keys; no crawl may run",
        (
            _option(
                "--from",
                "the config as it was: where servers leave",
                dest="old_config",
                metavar="FILE",
            ),
            _DRY_RUN,
            _JSON,
        ),
    ),
    ("keys dump", "keys.dump", "write all keys to a file, as a backup", (_BACKUP, _DRY_RUN, _JSON)),
    (
        "keys load",
        "keys.load",
        "add the keys of such a file; the higher state wins",
        (_BACKUP, _DRY_RUN, _JSON),
    ),
    (
        "crawldb stats",
        "table.stats",
        "URLs by status and host, when they are due, scores",
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
        "what is known of each host, a line each, those with most URLs first",
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
        "make the CrawlDb of a crawl that was made with fifo; no way back",
        (_JSON,),
    ),
    ("crawldb rebuild", "table.make_again", "make it again, of all seeds and segments", (_JSON,)),
    ("crawldb update", "table.update", "take in seeds and segments that it lacks", (_JSON,)),
    (
        "crawldb generate",
        "table.generate",
        "make the list of an iteration, or find it",
        (
            _option("--run-id", "name of the run", required=True, metavar="NAME"),
            _option(
                "--iteration",
                "its number in the run (default 1)",
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
        "apply changed normalisers and filters to its rows",
        (_JSON,),
    ),
    ("linkdb update", "links.update", "take in segments that it lacks", (_JSON,)),
    (
        "linkdb rank",
        "links.rank",
        "rank all URLs that pages link to, crawled or not (LinkRank)",
        (_JSON,),
    ),
    ("linkdb get", "links.get", "who links to a URL, and with which words", (_URL, _JSON)),
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
        "make the table of pages whose words are nearly the same, or find it",
        (_JSON,),
    ),
    ("duplicates mirrors", "duplicates.mirrors", "hosts that share most of their texts", (_JSON,)),
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
        "all segments, and what they hold",
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
        "all that was fetched of a URL, with its WARC records",
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
        "take pages out of every segment; their keys stay known",
        (
            _option("page", "a page's URL, or its key in hex", nargs="+", metavar="URL|KEY"),
            _YES,
            _DRY_RUN,
            _JSON,
        ),
    ),
    (
        "segment compact",
        "segments.compact",
        "write segments again without their dropped pages",
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
        "make a segment of the pages that were fetched in real time",
        (
            _option("--fetcher", "whose parts; default: live-0", default="live-0", metavar="NAME"),
            _JSON,
        ),
    ),
    (
        "realtime statistics",
        "collecting.statistics",
        "count by domain what was shared and fetched in an hour, and in hours of late segments",
        (
            _option(
                "--hour",
                "in UTC, such as 2026-11-28T07; default: the last one",
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
        "take in segments, so that look-ups of a URL are fast",
        (_JSON,),
    ),
    (
        "index update",
        "indexing.update",
        "make the version of the index that has the pages which are there now",
        (
            _flag(
                "--purge",
                "make all anew, and delete older versions: no words of deleted pages are left",
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
        "compare all files of the index with their digests; 1 if one differs",
        (_JSON,),
    ),
    (
        "index stats",
        "indexing.stats",
        "what the newest index has, and what it leaves out",
        (_JSON,),
    ),
    (
        "index cdxj",
        "segments.index_cdxj",
        "merge the indexes of all segments into one, for pywb",
        (
            _option(
                "--output",
                "on this machine, replaced if it is there; default: index.cdxj in the crawl",
                metavar="FILE",
            ),
            _JSON,
        ),
    ),
    (
        "commoncrawl index",
        "indexing.commoncrawl_index",
        "make Common Crawl's columnar index of the crawl, or find it",
        (_LABEL, _FOLDERS, _WITH_REQUISITES, _JSON),
    ),
    (
        "commoncrawl wet",
        "indexing.commoncrawl_wet",
        "make WET files of the texts of pages, or find them",
        (_LABEL, _FOLDERS, _JSON),
    ),
    (
        "nodes list",
        "nodes.list_nodes",
        "each node's share of hosts, queue, and what it had settled last",
        (_JSON,),
    ),
    (
        "nodes retire",
        "nodes.retire",
        "hand the queue of a node that left the config to those that are left; all others have settled",
        (
            _NODE,
            _option(
                "--dir",
                "a copy of the node's directory; default: its place here",
                metavar="DIRECTORY",
            ),
            _flag("--lost", "its disk is gone: find what it was sent, on the DFS"),
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
        "let a node that was retired as lost, and has an empty directory, take part again",
        (_NODE, _DRY_RUN),
    ),
    (
        "sweep",
        "repairing.sweep",
        "delete what killed attempts left on the store, and no attempt owns",
        (
            _flag(
                "--damaged",
                "also damaged segments, seeds and lists that were put aside, where whole ones are",
            ),
            _DRY_RUN,
            _JSON,
        ),
    ),
    (
        "fsck",
        "repairing.fsck",
        "check queues, folders, segments, key tables and exports, or repair them",
        (
            _flag("--repair", "repair what needs no choice; nothing is deleted"),
            _option(
                "--only", "repair only this; what it is made from has to be whole", choices=PARTS
            ),
            _flag("--fast", "sizes, counts and structure only; else every byte is read"),
            _option(
                "--node",
                "its queue has to be on this machine; its keys are noted for checks on others; may be repeated",
                action="append",
                default=[],
            ),
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
        "what a page answered: its headers, and its body without codings",
        (_PAGE, _flag("--body", "the body alone"), _EXPORT),
    ),
    (
        "search",
        "searching.search",
        "pages of the index that answer a query",
        (
            _option(
                "query", "words, and the operators of docs/search.md", nargs="+", metavar="QUERY"
            ),
            _option("--page", "which ten results (default 1)", type=_count, default=1, metavar="N"),
            _flag("--broader", "add words of the best pages to the query"),
            _flag("--explain", "say what each score is made of"),
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
        "fetch URLs as services submit them, until Ctrl-C (realtime.listen)",
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
                "for fetched pages, and what is known of hosts",
                required=True,
                metavar="DIR",
            ),
            _option("--certificates", "with ca.pem and NAME.pem", required=True, metavar="DIR"),
        ),
    ),
    (
        "realtime certificates",
        "remote.certificates",
        "make the certificates of scheduler and fetchers, and renew those with less than 30 days left",
        (_JSON,),
    ),
    (
        "realtime rate",
        "realtime.rate",
        "list what operators have set for domains, or set one: running services follow within 2 s",
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
        "list the tokens of the real-time service, add one, or remove one",
        (
            _option(
                "--add", "add a token, and print the token, which is shown once", metavar="NAME"
            ),
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
        "scope, rules and robots.txt of a URL, and a test fetch of it",
        (_URL, _JSON),
    ),
    (
        "shell",
        "shell.shell",
        "open a Python shell with a page (from a test fetch), its links, and the verdicts on them",
        (_URL,),
    ),
    (
        "report",
        "looking.report",
        "plots of the crawl and an export, as one HTML page",
        (
            _option(
                "file",
                "replaced if it is there (default krake-report.html)",
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
        "rank pages by the links between them (PageRank), or hosts, or domains",
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
        "make ranks the scores of the CrawlDb: those of `scores.of`, or of an export's pages",
        (_EXPORT, _JSON),
    ),
    (
        "config",
        "looking.config",
        "check the config, this machine and the servers; print what is in force",
        (),
    ),
)
"""Each command: its words, the function that carries it out, what it does, its options."""


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
        description="A batch web crawler that works in rounds.",
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
