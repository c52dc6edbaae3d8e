"""Which commands and options `krake` has."""

from __future__ import annotations

import argparse
import math
from typing import TypeAlias

from crawl_lib.cli import checking, crawling, folders, keys, looking, nodes, processing, queues, segments
from crawl_lib.version import VERSION


def build_parser() -> argparse.ArgumentParser:
    """The parser; `arguments.run(arguments)` carries the command out and returns its exit code."""
    parser = argparse.ArgumentParser(prog="krake", description="A batch web crawler that works in rounds.")
    parser.add_argument(
        "--config", metavar="FILE", help="config file; default: KRAKE_CONFIG_PATH, else config/krake-config.yml"
    )
    parser.add_argument("--version", action="version", version=f"krake {VERSION}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_crawling(commands)
    _add_processing(commands)
    _add_keys(commands)
    _add_queue(commands)
    _add_folder(commands)
    _add_segments(commands)
    _add_nodes(commands)
    _add_checking(commands)
    _add_looking(commands)
    return parser


_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


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
    inject = commands.add_parser("inject", help="add seeds to the crawl")
    inject.add_argument("seeds", help="URLs (a line each), or a file of them, or a directory of such files")
    inject.add_argument("--run-id", help="name of the run; the same run and seeds again change nothing")
    inject.set_defaults(run=crawling.inject)

    crawl = commands.add_parser("crawl", help="crawl: iterations of start, every node's crawl, commit")
    crawl.add_argument("--iterations", type=_count, default=1, metavar="N", help="how many (default 1)")
    crawl.add_argument("--batch-size", type=_count, metavar="N", help="URLs a node takes; default: batch.size")
    crawl.add_argument("--run-id", help="name of the run; give it again to go on with an unfinished one")
    crawl.add_argument("--node", help="only this node's part (on many machines); start and commit are left out")
    crawl.set_defaults(run=crawling.crawl)

    settle = commands.add_parser("settle", help="take in what the last iteration found, so that queues are complete")
    settle.add_argument("--node", help="only this node")
    settle.set_defaults(run=crawling.settle)

    forget = commands.add_parser("forget", help="make pages new again, so that they are crawled when found or injected")
    forget.add_argument("what", nargs="*", metavar="URL|HOST", help="a URL, or all crawled pages of a host")
    forget.add_argument(
        "--older-than", type=_days, metavar="DAYS", help="pages whose newest capture is older; of a host, or of all"
    )
    _add_dry_run(forget)
    forget.add_argument("--json", action="store_true")
    _add_yes(forget)
    forget.set_defaults(run=keys.forget)


def _add_processing(commands: _Commands) -> None:
    export = commands.add_parser("export", help="write mapping, content and offsets of the crawled pages")
    export.add_argument("--label", help="name of the export; default: its newest iteration")
    export.add_argument("--folders", nargs="+", metavar="FOLDER", help="only these iterations; default: all")
    export.set_defaults(run=processing.export)
    for name, text in (
        ("link", "turn links into arcs between the pages of an export"),
        ("finalize", "write the web graph of an export"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--export", metavar="NAME", help="name of the export; default: the newest")
        command.set_defaults(run=getattr(processing, name))


def _add_keys(commands: _Commands) -> None:
    command = commands.add_parser("keys", help="create, check and repair the key tables")
    actions = command.add_subparsers(metavar="ACTION", required=True)
    create = actions.add_parser("create", help="create the key tables on every server")
    which = create.add_mutually_exclusive_group()
    which.add_argument("--drop", action="store_true", help="drop existing tables: all keys are forgotten")
    which.add_argument("--missing", action="store_true", help="only where there are none, such as on a new disk")
    _add_yes(create)
    create.set_defaults(run=keys.create)
    check = actions.add_parser("check", help="count keys and compare replicas; exit code 1 if they differ")
    check.add_argument("--json", action="store_true")
    check.set_defaults(run=keys.check_keys)
    repair = actions.add_parser("repair", help="fill replicas that miss keys")
    _add_dry_run(repair)
    repair.add_argument("--json", action="store_true")
    repair.set_defaults(run=keys.repair_keys)
    _add_keys_by_hand(actions)


def _add_keys_by_hand(actions: _Commands) -> None:
    rebuild = actions.add_parser("rebuild", help="fill the tables from pages, queues and open takes, never from links")
    rebuild.add_argument(
        "--drop-queued", action="store_true", help="forget what is only queued, and held by nothing: it is found again"
    )
    rebuild.add_argument(
        "--anew", action="store_true", help="take in every segment anew: after --drop-queued on another machine"
    )
    rebuild.set_defaults(run=keys.rebuild)
    reshard = actions.add_parser("reshard", help="servers or replication changed: move the keys; no crawl may run")
    reshard.add_argument("--from", dest="old_config", metavar="FILE", help="the config as it was: where servers leave")
    reshard.set_defaults(run=keys.reshard_keys)
    dump = actions.add_parser("dump", help="write all keys to a file, as a backup")
    dump.set_defaults(run=keys.dump)
    load = actions.add_parser("load", help="add the keys of such a file; the higher state wins")
    load.set_defaults(run=keys.load)
    for command in (dump, load):
        command.add_argument("file", metavar="FILE")
    for command in (rebuild, reshard, dump, load):
        _add_dry_run(command)
        command.add_argument("--json", action="store_true")


def _add_dry_run(command: argparse.ArgumentParser) -> None:
    command.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")


def _add_yes(command: argparse.ArgumentParser) -> None:
    command.add_argument("--yes", action="store_true", help="do not ask, though no other command undoes it")


def _add_queue(commands: _Commands) -> None:
    command = commands.add_parser("queue", help="repair a node's queue")
    actions = command.add_subparsers(metavar="ACTION", required=True)
    repair = actions.add_parser("repair", help="make a queue that contradicts itself usable again; no URL is lost")
    repair.add_argument("--node", required=True, help="the node; its queue lies on this machine")
    repair.add_argument(
        "--lost", action="store_true", help="its queue is gone with its disk: begin an empty one, which finds all again"
    )
    _add_dry_run(repair)
    repair.set_defaults(run=queues.repair)


def _add_folder(commands: _Commands) -> None:
    command = commands.add_parser("folder", help="repair the small files of an iteration, or of injected seeds")
    actions = command.add_subparsers(metavar="ACTION", required=True)
    repair = actions.add_parser("repair", help="make iteration.json, scope and index.json again from what else stands")
    repair.add_argument("folder", metavar="FOLDER", help="an iteration's folder, or seeds/<digest>")
    repair.add_argument("--run-id", help="whose iteration it is, where nothing in the folder says so")
    repair.add_argument("--iteration", type=int, metavar="N", help="its number in that run; the same")
    _add_dry_run(repair)
    repair.add_argument("--json", action="store_true")
    repair.set_defaults(run=folders.repair)


def _add_checking(commands: _Commands) -> None:
    sweep = commands.add_parser("sweep", help="delete what killed attempts left on the store, and nobody owns")
    _add_dry_run(sweep)
    sweep.add_argument("--json", action="store_true")
    sweep.set_defaults(run=checking.sweep)
    fsck = commands.add_parser("fsck", help="check queues, segments, key tables and exports; changes nothing")
    fsck.add_argument("--fast", action="store_true", help="sizes, counts and structure only; else every byte is read")
    fsck.add_argument(
        "--node", action="append", default=[], help="its queue has to be on this machine; may be repeated"
    )
    fsck.add_argument("--dry-run", action="store_true", help="no trace at all, not even in the nodes' locks")
    fsck.add_argument("--json", action="store_true")
    fsck.set_defaults(run=checking.fsck)


def _add_nodes(commands: _Commands) -> None:
    command = commands.add_parser("nodes", help="the crawl's nodes; take one out, or in again")
    actions = command.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="each node's share of hosts, queue, and what it had settled last")
    listing.add_argument("--json", action="store_true")
    listing.set_defaults(run=nodes.list_nodes)
    retire = actions.add_parser("retire", help="hand the queue of a node that left the config to those that are left")
    retire.add_argument("node", help="the node; it is in `servers` no more, and the others have settled")
    retire.add_argument("--dir", metavar="DIRECTORY", help="a copy of the node's directory; default: its place here")
    retire.add_argument("--lost", action="store_true", help="its disk is gone: find what it was sent, on the DFS")
    retire.add_argument("--dry-run", action="store_true", help="only say what would be done")
    _add_yes(retire)
    retire.set_defaults(run=nodes.retire)
    admit = actions.add_parser("admit", help="let a node that was retired as lost take part again")
    admit.add_argument("node", help="the node; it is in `servers` again, and its directory is empty")
    _add_dry_run(admit)
    admit.set_defaults(run=nodes.admit)


def _add_segments(commands: _Commands) -> None:
    command = commands.add_parser("segment", help="repair segments, and take pages out of them")
    actions = command.add_subparsers(metavar="ACTION", required=True)
    salvage = actions.add_parser("salvage", help="make a damaged segment whole from its WARC files")
    salvage.add_argument("segment", metavar="SEGMENT", help="<folder>/<node>, or its path")
    salvage.add_argument("--requeue", action="store_true", help="crawl the lost pages that are known by name again")
    salvage.add_argument(
        "--delete-damaged", action="store_true", help="delete the damaged segment, which is kept beside the new one"
    )
    salvage.set_defaults(run=segments.salvage)
    drop = actions.add_parser("drop", help="take pages out of every segment; their keys stay known")
    drop.add_argument("page", nargs="+", metavar="URL|KEY")
    drop.set_defaults(run=segments.drop)
    compact = actions.add_parser("compact", help="write segments anew without their dropped pages")
    compact.add_argument("segment", nargs="*", metavar="SEGMENT", help="<folder>/<node>; default: all with such pages")
    compact.set_defaults(run=segments.compact)
    bring = commands.add_parser("import", help="make a segment of WARC or ARC files of any writer")
    bring.add_argument("archive", nargs="+", metavar="WARC", help="files, or directories of *.warc[.gz] and *.arc[.gz]")
    bring.set_defaults(run=segments.import_archives)
    for action in (salvage, drop, compact):
        _add_yes(action)
    for action in (salvage, drop, compact, bring):
        action.add_argument("--dry-run", action="store_true", help="look only, change nothing")
        action.add_argument("--json", action="store_true")


def _add_looking(commands: _Commands) -> None:
    status = commands.add_parser("status", help="iterations, outcomes, queues, keys, outputs")
    status.add_argument("--json", action="store_true")
    status.set_defaults(run=looking.status)
    show = commands.add_parser("show", help="a page and its links")
    show.add_argument("page", metavar="URL|KEY|NODEID")
    show.add_argument("--export", metavar="NAME", help="name of the export; default: the newest")
    show.set_defaults(run=looking.show)
    graph = commands.add_parser("graph", help="the web graph of an export")
    actions = graph.add_subparsers(metavar="ACTION", required=True)
    stats = actions.add_parser("stats", help="nodes, arcs, degrees")
    stats.add_argument("--export", metavar="NAME", help="name of the export; default: the newest")
    stats.set_defaults(run=looking.graph_stats)
    config = commands.add_parser("config", help="check the config and print what is in force")
    config.set_defaults(run=looking.config)
