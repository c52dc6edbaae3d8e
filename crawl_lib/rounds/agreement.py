"""Values that must be the same on all machines of an iteration: Krake's code, and the config but for local options.

The task that names the folder notes its own in `iteration.json`; a node's task compares before it begins. A change that
is meant is made known by running the run's `inject` again, which notes it next to `iteration.json` as `agreed-<n>.json`
for each iteration of the run that lacks segments; the last note holds. What is written is never changed.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from crawl_lib.config import shared_options
from crawl_lib.crawldir import Iteration, Register
from crawl_lib.dataclass import dataclass
from crawl_lib.dfsfiles import parsed_json, write_json_bytes
from crawl_lib.errors import ConfigError, TargetExistsError
from crawl_lib.sealed import SEALED_VERSION
from crawl_lib.stores import Stores
from crawl_lib.version import VERSION, code_digest

AGREED_PREFIX = "agreed-"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Agreed:
    """The facts that the start of an iteration notes of its machine. `config`: the shared options."""

    krake_version: str
    code_digest: str
    config: dict[str, Any]


def to_agree(stores: Stores) -> Agreed:
    """Return what the start of an iteration notes."""
    return Agreed(VERSION, code_digest(), shared_options(stores.config))


def note_change(stores: Stores, run_id: str) -> None:
    """Note this machine's values for the run's open iterations.

    Those are the iterations that lack segments, if any. Called by `inject`, and by who goes on with a run by hand.

    Raises ConfigError if nodes or routing differ: an iteration keeps those that it began with.
    """
    for current in stores.crawl.of_run(run_id):
        if not {*current.nodes} <= {*stores.crawl.folder(current.folder).segments()}:
            _note_change(stores, current)


def _note_change(stores: Stores, current: Iteration) -> None:
    register, newest, problem = _difference(stores, current)
    if not problem:
        return
    if (set(current.nodes), current.routing) != (
        set(stores.config.servers),
        stores.config.frontier.routing,
    ):
        raise ConfigError(
            f"servers: iteration {current.folder} began with {', '.join(current.nodes)} and {current.routing}"
            " routing, and keeps them; undo the change, or trigger a new run"
        )
    log.warning("iteration %s goes on with other settings: %s", current.folder, problem)
    note = {**vars(to_agree(stores)), "format_version": SEALED_VERSION}
    with suppress(TargetExistsError):  # another attempt, on this machine, noted the same
        register.write_next(newest, write_json_bytes(note))


def require_agreement(stores: Stores, current: Iteration) -> None:
    """Check that this machine agrees with the iteration's start.

    Raises ConfigError naming the differing options.
    """
    _, _, problem = _difference(stores, current)
    if problem:
        raise ConfigError(
            f"iteration {current.folder}: {problem}; make it the same on all machines. If the change is meant, clear"
            " the task inject with its downstream: what its machine has then holds for all"
        )


def _difference(stores: Stores, current: Iteration) -> tuple[Register, int, str]:
    """Return notes of changes, the newest number, and the difference.

    The number is 0 without notes; the difference is of this machine. "": it does not differ from that note, or without
    one from what `iteration.json` says.
    """
    register = Register(stores.storage, stores.crawl.at(current.folder), AGREED_PREFIX, ".json")
    newest, data = register.newest()
    agreed = parsed_json(data, register.path(newest)) if newest else current.agreed
    ours, differs = to_agree(stores), []
    if agreed.get("krake_version", VERSION) != VERSION:
        differs.append(
            f"this machine has Krake {VERSION}, and the iteration was begun with {agreed['krake_version']}"
        )
    elif (code := agreed.get("code_digest", ours.code_digest)) != ours.code_digest:
        differs.append(
            f"this machine's files of Krake {VERSION} (crawl_lib, sql; digest {ours.code_digest[:12]}) are not those"
            f" that the iteration was begun with ({code[:12]})"
        )
    if options := differences(ours.config, agreed.get("config", {})):
        differs.append(
            f"the iteration was begun with another config than that of this machine: {', '.join(options)}"
        )
    return register, newest, "; ".join(differs)


def differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """List the differences of two sets of shared options.

    An example is "fetch.host_delay_s is 2.0 here and 1.0 there". An option that one version of Krake lacks is no
    difference.
    """
    return [
        f"{name} is {_short(here[name])} here and {_short(there[name])} there"
        for name in sorted(here.keys() & there.keys())
        if here[name] != there[name]
    ]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
