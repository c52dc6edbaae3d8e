"""What must be the same on all machines of an iteration: Krake's code, and the config but for local options.

`start` notes its own next to `iteration.json`, as `agreed-1.json`; a node's task compares before it begins. A change
that is meant is made known by running the iteration's `start` again, which notes the next one; the last one holds.
What is written is never changed.
"""

import logging
from contextlib import suppress
from typing import Any

from crawl_lib.config import differences, shared_options
from crawl_lib.crawldir import Iteration, Register, read_json, write_json_bytes
from crawl_lib.errors import ConfigError, TargetExistsError
from crawl_lib.sealed import SEALED_VERSION
from crawl_lib.stores import Stores
from crawl_lib.version import VERSION, code_digest

AGREED_PREFIX = "agreed-"
FIRST_FILE = f"{AGREED_PREFIX}1.json"
log = logging.getLogger(__name__)


def agreed_bytes(stores: Stores, run_id: str, iteration: int) -> bytes:
    """What `start` notes: version, digest of the code, and shared options of its machine.

    And whose iteration it is, so that `iteration.json` can be made again from it.
    """
    return write_json_bytes(
        {**_ours(stores), "format_version": SEALED_VERSION, "run_id": run_id, "iteration": iteration}
    )


def note_change(stores: Stores, own: Iteration) -> None:
    """Called by a `start` that finds its folder: what has changed on its machine since holds from now on.

    Raises ConfigError if it is the nodes or the routing: an iteration keeps those that it began with.
    """
    register, newest, problem = _difference(stores, own)
    if not problem:
        return
    began = (set(own.nodes), own.routing)
    if began != (set(stores.config.servers), stores.config.frontier.routing):
        raise ConfigError(
            f"servers: iteration {own.folder} began with {', '.join(own.nodes)} and {own.routing} routing, and keeps"
            " them; undo the change, or trigger a new run"
        )
    log.warning("iteration %s goes on with other settings: %s", own.folder, problem)
    with suppress(TargetExistsError):  # another attempt, on this machine, noted the same
        data = agreed_bytes(stores, own.run_id, own.iteration)
        stores.storage.write_bytes(register.path(newest + 1), data)


def require_agreement(stores: Stores, own: Iteration) -> None:
    """Raise ConfigError, naming the options, if this machine differs from the one where the iteration was started."""
    _, _, problem = _difference(stores, own)
    if problem:
        raise ConfigError(
            f"iteration {own.folder}: {problem}; make it the same on all machines. If the change is meant, clear the"
            f" task start of iteration {own.iteration} with its downstream: what its machine has then holds for all"
        )


def _ours(stores: Stores) -> dict[str, Any]:
    return {"krake_version": VERSION, "code_digest": code_digest(), "config": shared_options(stores.config)}


def _difference(stores: Stores, own: Iteration) -> tuple[Register, int, str]:
    """The notes of an iteration, the newest one's number (0 in a folder of before there were any), and how this
    machine differs from it, "" if it does not."""
    register = Register(stores.storage, stores.crawl.at(own.folder), AGREED_PREFIX, ".json")
    newest, _ = register.newest()
    agreed = read_json(stores.storage, register.path(newest)) if newest else {}
    ours, differs = _ours(stores), []
    if agreed.get("krake_version", VERSION) != VERSION:
        differs.append(f"this machine has Krake {VERSION}, and start ran with {agreed['krake_version']}")
    elif (code := agreed.get("code_digest", ours["code_digest"])) != ours["code_digest"]:
        differs.append(
            f"this machine's files of Krake {VERSION} (crawl_lib, sql; digest {ours['code_digest'][:12]}) are not those"
            f" that start ran with ({code[:12]})"
        )
    if options := differences(ours["config"], agreed.get("config", {})):
        differs.append(f"the config of this machine is not that of start: {', '.join(options)}")
    return register, newest, "; ".join(differs)
