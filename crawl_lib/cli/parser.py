"""Which commands and options `krake` has."""

import argparse
import math
import re
from typing import NoReturn, TypeAlias

from crawl_lib.cli import crawling, keys, looking, nodes, processing, repairing, segments
from crawl_lib.findings import PARTS
from crawl_lib.version import VERSION

_EPILOG = """\
a crawl by hand: inject, crawl, settle; then export, graph link, graph finalize. `krake COMMAND --help` says more.
exit code: 0 done; 1 an error, or a check that found something; 2 wrong words; 130, 143 stopped (Ctrl-C, SIGTERM)"""


MOVED = {
    "queue": "fsck --repair --only queue",
    "folder": "fsck --repair --only folders",
    "segment salvage": "fsck --repair --only segments",
    "keys repair": "fsck --repair --only keys",
    "keys rebuild": "fsck --repair --only keys",
    "--missing": "fsck --repair --only keys",
    "link": "graph link",
    "finalize": "graph finalize",
}
"""What commands of before are called now."""


class _Parser(argparse.ArgumentParser):
    """Says of `--config` behind the command where it belongs."""

    def error(self, message: str) -> NoReturn:
        """As argparse does: usage and one line on standard error, exit code 2."""
        if re.search(r"unrecognized arguments:.* --config\b", message):
            message += "; --config comes before the command: krake --config FILE COMMAND"
        word = re.search(r"invalid choice: '([\w-]+)'|unrecognized arguments: (--missing)", message)
        old = f"{self.prog} {word[1] or word[2]}".removeprefix("krake ") if word else ""
        if old in MOVED:
            message = f"`{old}` is `krake {MOVED[old]}` now"
        super().error(message)


def build_parser() -> argparse.ArgumentParser:
    """The parser; `arguments.run(arguments)` carries the command out and returns its exit code."""
    parser = _Parser(
        prog="krake",
        description="A batch web crawler that works in rounds.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config", metavar="FILE", help="config file; default: KRAKE_CONFIG_PATH, else config/krake-config.yml"
    )
    parser.add_argument("--version", action="version", version=f"krake {VERSION}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_crawling(commands)
    _add_processing(commands)
    _add_keys(commands)
    _add_segments(commands)
    _add_nodes(commands)
    _add_repairing(commands)
    _add_looking(commands)
    return parser


_Commands: TypeAlias = "argparse._SubParsersAction[_Parser]"


def _command(commands: _Commands, name: str, text: str) -> _Parser:
    """A command; `text` explains it in the list of commands and above its own options."""
    return commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")


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


def _add_crawling(commands: _Commands) -> None:
    inject = _command(commands, "inject", "add seeds to the crawl")
    inject.add_argument(
        "seeds", metavar="SEEDS", help="URLs (a line each), or a file of them, or a directory of such files"
    )
    inject.add_argument("--run-id", metavar="NAME", help="name of the run; the same run and seeds again change nothing")
    inject.set_defaults(run=crawling.inject)

    crawl = _command(commands, "crawl", "crawl: iterations of start, every node's crawl, commit")
    crawl.add_argument("--iterations", type=_count, default=1, metavar="N", help="how many (default 1)")
    crawl.add_argument("--batch-size", type=_count, metavar="N", help="URLs a node takes; default: batch.size")
    crawl.add_argument(
        "--run-id", metavar="NAME", help="name of the run; give it again to go on with an unfinished one"
    )
    crawl.add_argument("--node", help="only this node's part (on many machines); start and commit are left out")
    crawl.set_defaults(run=crawling.crawl)

    settle = _command(commands, "settle", "take in what the last iteration found, so that queues are complete")
    settle.add_argument("--node", help="only this node")
    settle.add_argument("--all-again", action="store_true", help="read every segment again: where `krake fsck` says so")
    settle.set_defaults(run=crawling.settle)

    forget = _command(commands, "forget", "make pages new again, so that they are crawled when found or injected")
    forget.add_argument("what", nargs="*", metavar="URL|HOST", help="a URL, or all crawled pages of a host")
    forget.add_argument(
        "--older-than", type=_days, metavar="DAYS", help="pages whose newest capture is older; of a host, or of all"
    )
    _add_dry_run(forget)
    _add_json(forget)
    _add_yes(forget)
    forget.set_defaults(run=keys.forget)


def _add_processing(commands: _Commands) -> None:
    export = _command(commands, "export", "write mapping, content and offsets of the crawled pages")
    export.add_argument("--label", metavar="NAME", help="name of the export; default: its newest iteration")
    export.add_argument("--folders", nargs="+", metavar="FOLDER", help="only these iterations; default: all")
    export.set_defaults(run=processing.export)


def _add_keys(commands: _Commands) -> None:
    command = _command(commands, "keys", "create, check and repair the key tables")
    actions = command.add_subparsers(metavar="ACTION", required=True)
    create = _command(actions, "create", "create the key tables on every server")
    create.add_argument("--drop", action="store_true", help="drop existing tables: all keys are forgotten")
    _add_yes(create)
    create.set_defaults(run=keys.create)
    check = _command(actions, "check", "count keys and compare replicas; exit code 1 if they differ")
    _add_json(check)
    check.set_defaults(run=keys.check_keys)
    reshard = _command(actions, "reshard", "servers or replication changed: move the keys; no crawl may run")
    reshard.add_argument("--from", dest="old_config", metavar="FILE", help="the config as it was: where servers leave")
    reshard.set_defaults(run=keys.reshard_keys)
    dump = _command(actions, "dump", "write all keys to a file, as a backup")
    dump.set_defaults(run=keys.dump)
    load = _command(actions, "load", "add the keys of such a file; the higher state wins")
    load.set_defaults(run=keys.load)
    for command in (dump, load):
        command.add_argument("file", metavar="FILE", help="the backup, on this machine")
    for command in (reshard, dump, load):
        _add_dry_run(command)
        _add_json(command)


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="the result as JSON, for programs")


def _add_dry_run(command: argparse.ArgumentParser) -> None:
    command.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")


def _add_yes(command: argparse.ArgumentParser) -> None:
    command.add_argument("--yes", action="store_true", help="do not ask, though no other command undoes it")


def _add_repairing(commands: _Commands) -> None:
    sweep = _command(commands, "sweep", "delete what killed attempts left on the store, and nobody owns")
    sweep.add_argument(
        "--damaged", action="store_true", help="also damaged segments that were put aside, where a whole one is"
    )
    _add_dry_run(sweep)
    _add_json(sweep)
    sweep.set_defaults(run=repairing.sweep)
    fsck = _command(commands, "fsck", "check queues, folders, segments, key tables and exports, or repair them")
    fsck.add_argument("--repair", action="store_true", help="repair what needs no choice; nothing is deleted")
    fsck.add_argument("--only", choices=PARTS, help="repair only this; what it is made from has to be whole")
    fsck.add_argument("--fast", action="store_true", help="sizes, counts and structure only; else every byte is read")
    fsck.add_argument(
        "--node",
        action="append",
        default=[],
        help="its queue has to be on this machine; its keys are noted for checks on others; may be repeated",
    )
    fsck.add_argument("--dry-run", action="store_true", help="no trace at all, not even in the nodes' locks")
    _add_json(fsck)
    fsck.set_defaults(run=repairing.fsck)


def _add_nodes(commands: _Commands) -> None:
    command = _command(commands, "nodes", "the crawl's nodes; take one out, or in again")
    actions = command.add_subparsers(metavar="ACTION", required=True)
    listing = _command(actions, "list", "each node's share of hosts, queue, and what it had settled last")
    _add_json(listing)
    listing.set_defaults(run=nodes.list_nodes)
    retire = _command(actions, "retire", "hand the queue of a node that left the config to those that are left")
    retire.add_argument(
        "node", metavar="NODE", help="the node; it is in `servers` no more, and the others have settled"
    )
    retire.add_argument("--dir", metavar="DIRECTORY", help="a copy of the node's directory; default: its place here")
    retire.add_argument("--lost", action="store_true", help="its disk is gone: find what it was sent, on the DFS")
    retire.add_argument("--dry-run", action="store_true", help="only say what would be done")
    _add_yes(retire)
    retire.set_defaults(run=nodes.retire)
    restart = _command(actions, "restart", "begin an empty queue where the node's own is lost; all is found again")
    restart.add_argument("node", metavar="NODE", help="the node; its directory is gone, or empty")
    _add_dry_run(restart)
    restart.set_defaults(run=nodes.restart)
    admit = _command(actions, "admit", "let a node that was retired as lost take part again")
    admit.add_argument("node", metavar="NODE", help="the node; it is in `servers` again, and its directory is empty")
    _add_dry_run(admit)
    admit.set_defaults(run=nodes.admit)


def _add_segments(commands: _Commands) -> None:
    command = _command(commands, "segment", "take pages out of segments")
    actions = command.add_subparsers(metavar="ACTION", required=True)
    drop = _command(actions, "drop", "take pages out of every segment; their keys stay known")
    drop.add_argument("page", nargs="+", metavar="URL|KEY", help="a page's URL, or its key in hex")
    drop.set_defaults(run=segments.drop)
    compact = _command(actions, "compact", "write segments anew without their dropped pages")
    compact.add_argument("segment", nargs="*", metavar="SEGMENT", help="<folder>/<node>; default: all with such pages")
    compact.set_defaults(run=segments.compact)
    bring = _command(commands, "import", "make a segment of WARC or ARC files of any writer")
    bring.add_argument("archive", nargs="+", metavar="WARC", help="files, or directories of *.warc[.gz] and *.arc[.gz]")
    bring.set_defaults(run=segments.import_archives)
    index = _command(commands, "index", "merge the indexes of all segments into one, for pywb")
    index.add_argument(
        "--output", metavar="FILE", help="on this machine, replaced if it is there; default: index.cdxj in the crawl"
    )
    index.set_defaults(run=segments.index)
    _add_json(index)
    for action in (drop, compact):
        _add_yes(action)
    for action in (drop, compact, bring):
        action.add_argument("--dry-run", action="store_true", help="look only, change nothing")
        _add_json(action)


def _add_looking(commands: _Commands) -> None:
    status = _command(commands, "status", "iterations, outcomes, queues, keys, outputs")
    _add_json(status)
    status.set_defaults(run=looking.status)
    show = _command(commands, "show", "a page and its links")
    show.add_argument("page", metavar="URL|KEY|NODEID", help="its URL, its key in hex, or its number in the export")
    show.add_argument("--export", metavar="NAME", help="name of the export; default: the newest")
    show.set_defaults(run=looking.show)
    graph = _command(commands, "graph", "the web graph of an export")
    actions = graph.add_subparsers(metavar="ACTION", required=True)
    for name, text, run in (
        ("link", "turn links into arcs between the pages of an export", processing.link),
        ("finalize", "write the web graph of an export", processing.finalize),
        ("stats", "nodes, arcs, degrees", looking.graph_stats),
    ):
        action = _command(actions, name, text)
        action.add_argument("--export", metavar="NAME", help="name of the export; default: the newest")
        action.set_defaults(run=run)
    config = _command(commands, "config", "check the config and print what is in force")
    config.set_defaults(run=looking.config)
