"""What a check or a repair of the key servers saw and did."""

from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from crawl_lib.errors import DamagedKeysError, KeyAccessError, KeyServerDownError, KeyStoreError, KeyTablesError
from crawl_lib.keys.keystore import ServerCounts


def plain(report: Any) -> dict[str, Any]:
    """The public fields of a report, counters as dicts: `asdict` calls Counter with pairs, which it then counts."""
    values = {item.name: getattr(report, item.name) for item in fields(report) if item.name[0] != "_"}
    return {name: dict(value) if isinstance(value, Counter) else value for name, value in values.items()}


@dataclass
class MaintenanceReport:
    """What a check or a repair saw and did.

    `server`: whose interval alone was looked at, "" for all. `servers`: counts per server, taken before a repair; of
    one server's report, that one's. `compared`: prefixes of which at least two replicas were
    compared; `differing`: those that were not alike. `missing`: keys that a server should hold and does not, by
    server; `behind`: keys whose state is lower there than on another replica. `filled`, `raised`: how many of them a
    repair changed. `created`: servers whose tables a repair created. `misplaced`: keys on a server that does not own
    them, by server; `misplaced_samples`: a few of them in hex. They do no harm and are left alone: they come from a
    change of `key_storage.servers` or `replication`, and their owners may not know them. `failed`: servers that
    could not be looked at or repaired, with the reason.
    """

    kind: str
    replication: int
    server: str = ""
    servers: list[ServerCounts] = field(default_factory=list)
    compared: int = 0
    differing: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    behind: Counter[str] = field(default_factory=Counter)
    filled: Counter[str] = field(default_factory=Counter)
    raised: Counter[str] = field(default_factory=Counter)
    created: list[str] = field(default_factory=list)
    misplaced: Counter[str] = field(default_factory=Counter)
    misplaced_samples: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    _errors: list[KeyStoreError] = field(default_factory=list, repr=False)

    def fail(self, server: str, error: KeyStoreError) -> None:
        """Note that a server is left out from now on."""
        self.failed[server] = str(error)
        self._errors.append(error)

    @property
    def ok(self) -> bool:
        """Whether nothing is left to do: every server answered, and what was missing or behind is repaired."""
        whole = self.filled == self.missing and self.raised == self.behind
        return not self.failed and not self.misplaced and whole

    def raise_if_failed(self) -> None:
        """Raise the error of the servers that could not be looked at or repaired, if there are any, naming all.

        KeyAccessError or KeyTablesError if one of them waits for the operator, else KeyServerDownError.
        """
        if self.failed:
            kinds = (KeyAccessError, DamagedKeysError, KeyTablesError)
            by_hand = (kind for kind in kinds for error in self._errors if isinstance(error, kind))
            reasons = "; ".join(self.failed.values())
            kind = next(by_hand, KeyServerDownError)
            raise kind(f"key servers were left out: {reasons}: run `krake fsck --repair` when they answer")

    def to_mapping(self) -> dict[str, Any]:
        """The report in plain dicts, lists, numbers and texts (JSON)."""
        return {**plain(self), "servers": [asdict(counts) for counts in self.servers], "ok": self.ok}

    def to_text(self) -> str:
        """The report for people: a line per server, then what differs and what to do."""
        lines = [_server_line(counts) for counts in self.servers]
        lines.append(f"replicas: {self.replication}; prefixes compared: {self.compared}, differing: {self.differing}")
        for word, counts in (
            ("missing", self.missing),
            ("behind in state", self.behind),
            ("filled", self.filled),
            ("state raised", self.raised),
        ):
            lines += [f"{name}: {count} keys {word}" for name, count in sorted(counts.items())]
        lines += [f"{name}: key tables created" for name in self.created]
        for name, count in sorted(self.misplaced.items()):
            samples = ", ".join(self.misplaced_samples.get(name, ()))
            lines.append(
                f"{name}: {count} keys of other servers, e.g. {samples}:"
                " key_storage.servers or replication is not what these keys were stored with"
            )
        lines += [f"left out: {reason}" for reason in self.failed.values()]
        lines.append(self._verdict())
        return "\n".join(lines)

    def _verdict(self) -> str:
        if self.ok:
            return f"all replicas of the keys of {self.server} are whole" if self.server else "all replicas are whole"
        if self.failed:
            return "not all servers could be looked at: run `krake fsck --repair` when they answer"
        if self.misplaced:
            return "there are keys on servers that do not own them: see above"
        return "replicas differ: run `krake fsck --repair`"


def _server_line(counts: ServerCounts) -> str:
    if not counts.up:
        return f"{counts.server}: failed"
    states = ", ".join(f"{count} {word}" for word, count in counts.by_state.items())
    return f"{counts.server}: {counts.total} keys ({states})"
