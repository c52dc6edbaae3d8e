"""Missing or broken key tables, made again: empty, and marked, so that no task asks them.

Tables that lack only the table of turns get that table.
"""

from collections.abc import Callable

from crawl_lib.crawldir import Unfilled
from crawl_lib.durable import reached
from crawl_lib.errors import KeyStoreError
from crawl_lib.keys import KeyServer, make_again, rewrite_notes, why_broken
from crawl_lib.repair.folders.identity import nodes_left
from crawl_lib.repair.keys.held import unseen_nodes
from crawl_lib.stores import Stores


def make_tables(stores: Stores, *, full: bool, say: Callable[[str], None], dry_run: bool) -> None:
    """Make missing or unusable tables, and unreadable notes of places.

    `full`: embedded tables are read to their end. A broken file is kept as `<file>.damaged-<time>`. A server without an
    answer, or that refuses us, is left to people, as a finding. Raises KeyStoreError.
    """
    with stores.key_servers() as store:
        problems = {server.name: why_broken(server, full=full) for server in store.servers}
        servers = stores.config.servers
        embedded = stores.config.key_storage.is_embedded
        has_nodes = any(stores.node_dir(node).is_dir() for node in servers)
        if embedded and not has_nodes and not stores.crawl.segments():
            return  # the first task makes the tables
        broken = [server for server in store.servers if problems[server.name]]
        if (
            broken and not dry_run and stores.config.order.keeps_keys
        ):  # a CrawlDb has no keys to fill in
            here = [
                node for node in [*servers, *nodes_left(stores)] if stores.node_dir(node).is_dir()
            ]
            elsewhere = [node for node in unseen_nodes(stores, here) if node in servers]
            Unfilled(stores.crawl).add([Unfilled.PAGES, *dict.fromkeys([*here, *elsewhere])])
            reached("repair.tables.marked")
        for server in broken:
            say(f"{server.name}: {problems[server.name]}; new key tables are made, and filled")
            if not dry_run:
                make_again(server)
        if not dry_run:
            for name in rewrite_notes(store.servers, store.replication):
                say(f"{name}: the note of its place among the key servers was written again")
        for server in (
            store.servers
        ):  # last: on one node, users without the right to make tables can do without
            if server not in broken and _lacks_slots(server):
                if not dry_run:
                    server.make_slots()
                say(f"{server.name}: has no table of turns; one is made")


def _lacks_slots(server: KeyServer) -> bool:
    try:
        return server.exists() and not server.has_slots()
    except KeyStoreError:
        return False
