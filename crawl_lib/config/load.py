"""YAML file -> `Config`: unknown keys, wrong types and impossible values are one clear line each, and all are said."""

import ipaddress
import math
import operator
import os
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from crawl_lib.config.model import Config, KeyStorageConfig, Pattern
from crawl_lib.config.place import ConfigPlace, short_path
from crawl_lib.errors import ConfigError, os_errors
from crawl_lib.version import in_checkout

_TYPE_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def load_config(path: Path | str | None = None) -> Config:
    """Read and check a config file.

    `path`: the YAML file, which messages name as it is given; None has it found (`ConfigPlace.find`). Raises
    ConfigError with a line for each option that is wrong, naming file, key and the nearest valid key; the operator
    corrects the file.
    """
    import yaml  # noqa: PLC0415 - not for fetching processes, which get their config as JSON

    given = _found_path() if path is None else path
    file = Path(given).resolve()
    if file.is_dir():  # Airflow takes all of them
        make = ", make crawl CONFIG=FILE" if in_checkout() else ""
        raise ConfigError(
            f"{given}: is a folder; name a config of the folder (krake --config FILE{make})"
        )
    try:
        with os_errors(given, f"cannot be read{_next_to(file)}", ConfigError):
            text = file.read_text(encoding="utf-8")
        # The one in C takes 4 ms, not 30, for the default file.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        twice, mapping = list(_twice(yaml.compose(text, loader))), yaml.load(text, loader)  # noqa: S506 - safe ones
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
    ) as error:  # 2024-99-99 is no date, and a ValueError
        raise ConfigError(
            f"{given}: is not YAML: {' '.join(str(error).split())}{_tab_at(error, text)}"
        ) from error
    return _read(mapping, file.parent, str(given), twice, (*_TOGETHER, _schedule_problems))


def _tab_at(error: Exception, text: str) -> str:
    """Name the tab that made a text unreadable, if any."""
    mark = getattr(error, "problem_mark", None)
    line = text.splitlines()[mark.line : mark.line + 1] if mark else []
    is_tab = any(re.match(r"\s*\t", one) for one in line)
    return "; the line begins with a tab, and YAML takes spaces alone" if is_tab else ""


def _found_path() -> str:
    path = ConfigPlace.find(os.environ)
    if not path.exists():
        raise ConfigError(f"{path}: no such config file ({ConfigPlace.VARIABLE} names it)")
    return short_path(path)


def _next_to(file: Path) -> str:
    """Name the configs next to a missing one, in brackets."""
    names = sorted(path.name for path in file.parent.glob("*.yml"))
    return f" (there are {', '.join(names[:10])})" if names and not file.exists() else ""


def _twice(node: Any, prefix: str = "") -> Iterator[str]:
    """Yield sections and options that are there twice.

    YAML would take the last one without a warning.

    `node`: of YAML. Sections are mappings in mappings, so lists are not looked into.
    """
    if getattr(node, "id", "") != "mapping":
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        name, line = prefix + str(key.value), key.start_mark.line + 1
        if name in lines:
            yield f"{name}: is there twice, in lines {lines[name]} and {line}; put both together"
        lines[name] = line
        yield from _twice(value, f"{name}.")


def from_mapping(mapping: object, base: Path, source: str = "config") -> Config:
    """Build a `Config` from parsed YAML.

    Raises ConfigError with a line for each invalid option. A line has `source`, the option's name, and the problem.

    `mapping`: sections and options by name. `base`: the folder that relative local paths are relative to; they are
    absolute from here on, so that child processes and a changed working directory mean the same.
    """
    return _read(mapping, base, source, [], _TOGETHER)


def _read(
    mapping: object,
    base: Path,
    source: str,
    problems: list[str],
    checks: Sequence[Callable[[Any], Iterator[str]]],
) -> Config:
    """Read the config, and collect problems.

    `problems`: those seen already. `checks`: of options that belong together.
    """
    reader = _Reader(base, problems)
    with reader.noted():
        config = reader.section(Config, mapping, "")
        for check in checks:
            # An option that is wrong itself is None here, and the check may not know what to make of it.
            with suppress(*((TypeError, AttributeError) if problems else ())):
                problems += check(config)
    if problems:
        raise ConfigError(*(f"{source}: {problem}" for problem in problems))
    return typing.cast(Config, config)


_TAKEN_NAMES = {"default": "Airflow's queue of the tasks that belong to no node"}


def _name_problems(config: Any) -> Iterator[str]:
    for name, meaning in _TAKEN_NAMES.items():
        if name in config.servers:
            yield f"servers: {name!r} is the name of {meaning}; name the node otherwise"


def _key_problems(config: Any) -> Iterator[str]:
    keys = config.key_storage
    if keys.replication > len(keys.servers):
        yield f"key_storage.replication: {keys.replication} replicas need as many servers, not {len(keys.servers)}"
    if len({KeyStorageConfig.is_sqlite(server) for server in keys.servers}) > 1:
        yield "key_storage.servers: SQLite files and MySQL servers cannot be mixed"
    if keys.ca_file is not None and keys.tls != "verify":
        yield "key_storage.ca_file: certificates are looked at with key_storage.tls: verify only"


def _delay_problems(config: Any) -> Iterator[str]:
    """Yield the contradiction of several connections with a delay.

    A delay runs from the end of an answer to the next request of a host.
    """
    fetch = config.fetch
    given = [
        (
            "fetch.connections_per_host",
            fetch.connections_per_host,
            "fetch.host_delay_s",
            fetch.host_delay_s,
        )
    ]
    for index, entry in enumerate(fetch.hosts):
        where = f"fetch.hosts[{index}]"
        if problem := _host_problem(entry):
            yield f"{where}.value: {problem}"
        delay_s = fetch.host_delay_s if entry.delay_s is None else entry.delay_s
        connections = fetch.connections_per_host if entry.connections is None else entry.connections
        given.append((f"{where}.connections", connections, f"{where}.delay_s", delay_s))
    for name, connections, delay_name, delay_s in given:
        if connections > 1 and delay_s > 0:
            yield f"{name}: more than 1 needs a {delay_name} of 0"
        if connections > 1 and fetch.adaptive_delay_factor is not None:
            yield f"{name}: more than 1 needs a fetch.adaptive_delay_factor of null"


def _directory_problems(config: Any) -> Iterator[str]:
    places = {
        name: getattr(config, name).directory.strip("/") for name in ("crawl", "export", "text")
    }
    for one, other in (("export", "crawl"), ("text", "crawl"), ("text", "export")):
        if places[one] == places[other]:
            yield f"{one}.directory: must differ from {other}.directory"


def _interval_problems(config: Any) -> Iterator[str]:
    """Yield impossible intervals, and rules that match no host."""
    schedule = config.schedule
    if schedule.min_s > schedule.max_s:
        yield f"schedule.min_s: {schedule.min_s} is more than schedule.max_s: {schedule.max_s}"
    for index, rule in enumerate(schedule.rules):
        if rule.kind is not None and (problem := _host_problem(rule)):
            yield f"schedule.rules[{index}].value: {problem}"
        if rule.min_s and rule.max_s and rule.min_s > rule.max_s:
            yield f"schedule.rules[{index}].min_s: {rule.min_s} is more than its max_s: {rule.max_s}"


def _scope_problems(config: Any) -> Iterator[str]:
    for name in ("normalizers", "filters"):
        if getattr(config.urls, name).partition is not None:
            yield (
                f"urls.{name}.partition: a URL's owner follows from its host alone: else two nodes would ask one host,"
                " and take in one key; hosts that are one are made one by a normaliser `hosts` of outlink and inject"
            )
    for index, entry in enumerate(config.urls.domains):
        if problem := _host_problem(entry):
            yield f"urls.domains[{index}].value: {problem}"


def _order_problems(config: Any) -> Iterator[str]:
    changing = (
        []
        if config.order.has_crawldb
        else [task for task in config.scores.tasks if task != "invert_links"]
    )
    yield from (
        f"scores.tasks: {task} needs frontier.order: crawldb, whose rows it changes"
        for task in changing
    )


def _policy_problems(config: Any) -> Iterator[str]:
    names = [policy.name for policy in config.realtime.policies] if config.realtime else []
    for index, name in enumerate(names):
        if name in names[:index]:
            yield f"realtime.policies[{index}].name: {name!r} is the name of an earlier policy; choose another name"


def _fetcher_problems(config: Any) -> Iterator[str]:
    taken, fetchers = ["live-0"], config.realtime.fetchers if config.realtime else ()
    if len(fetchers) > 1 and config.fetch.ip_delay_s > 0 and not config.realtime.share_turns:
        yield "fetch.ip_delay_s: several fetchers keep this delay with realtime.share_turns: true only; or set 0"
    for index, fetcher in enumerate(fetchers):
        if fetcher.name in taken:
            yield f"realtime.fetchers[{index}].name: {fetcher.name!r} is taken (live-0: by the service's own fetcher)"
        taken.append(fetcher.name)


_TOGETHER = (
    _name_problems,
    _key_problems,
    _delay_problems,
    _directory_problems,
    _interval_problems,
    _scope_problems,
    _order_problems,
    _policy_problems,
    _fetcher_problems,
)
"""Checks of options that have to go together."""


_CRON_FIELDS = 5
"""As in POSIX crontab. For croniter a sixth field is the second: a crawl would begin 60 times a minute."""
_CRON_FIELDS_WORDS = 'write minute, hour, day of month, month and day of week, such as "0 3 * * *"'


def _schedule_problems(config: Any) -> Iterator[str]:
    """Yield problems of schedules and files.

    Fetching processes need no schedule.
    """
    schedule = config.crawl.schedule
    if schedule is not None:
        # 65 ms, as Airflow reads it
        from croniter import CroniterBadDateError, croniter  # type: ignore[import-untyped] # noqa: PLC0415

        if not croniter.is_valid(schedule):
            yield f'crawl.schedule: {schedule!r} is not a cron expression, such as "0 3 * * *"'
        elif len(croniter(schedule).expanded) > _CRON_FIELDS:
            yield f"crawl.schedule: {schedule!r} has more than five fields; {_CRON_FIELDS_WORDS}"
        else:
            try:
                croniter(schedule).get_next()
            except CroniterBadDateError:  # such as of 31 February
                yield f"crawl.schedule: {schedule!r} names a day outside every year"


_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")


def _host_problem(entry: Any) -> str | None:
    """Say why a host entry matches nothing.

    Such entries are in `fetch.hosts`, `schedule.rules` and `urls.domains`.
    """
    if entry.kind == "regex":
        try:
            re.compile(entry.value)
        except (re.error, OverflowError, RecursionError) as error:
            return f"{entry.value!r} is not a regular expression: {error}"
    elif entry.kind == "domain" and not _HOST.fullmatch(entry.value):
        return (
            f"{entry.value!r} is no host as URLs have it: in lower case, other letters as xn--,"
            " addresses in their shortest form, without port or star"
        )
    return None


class _OptionError(Exception):
    """An option is wrong; the message begins with its name."""


class _Reader:
    """Reads sections of one file. An invalid option is noted in `problems`, and reads as None."""

    def __init__(self, base: Path, problems: list[str]) -> None:
        self.base, self.problems = base, problems

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Within, the first option that is wrong ends the block."""
        try:
            yield
        except _OptionError as problem:
            self.problems.append(str(problem))

    def require(self, is_right: object, key: str, problem: str) -> None:
        if not is_right:
            raise _OptionError(f"{key}: {problem}")

    def section(self, kind: type, mapping: Any, prefix: str) -> Any:
        where = prefix.rstrip(".") or "the file"
        self.require(
            isinstance(mapping, dict), where, f"must be a mapping of options, not {_word(mapping)}"
        )
        known = {item.name: item for item in fields(kind)}
        for key in (key for key in mapping if key not in known):
            import difflib  # noqa: PLC0415 - seldom needed, and each process that fetches would load it

            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)[0]
            self.problems.append(
                f"{prefix}{key}: unknown option; the nearest option is {prefix}{near}"
            )
        values: dict[str, Any] = dict.fromkeys(known)
        for name, item in known.items():
            with self.noted():
                given = mapping.get(name, item.default)
                self.require(given is not MISSING, prefix + name, "is missing, and has no default")
                values[name] = self.value(item.type, item, given, prefix + name)
                if values[name] is None and (
                    source := values.get(item.metadata.get("content_of", ""))
                ):
                    values[name] = _text_of(Path(source), f"{prefix}{item.metadata['content_of']}")
        return kind(**values)

    def value(self, hint: Any, item: Field[Any], value: Any, key: str) -> Any:
        if isinstance(hint, types.UnionType):
            if value is None:
                return None
            hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
        if is_dataclass(hint):
            given = {} if isinstance(value, typing.cast(type, hint)) else value
            return self.section(typing.cast(type, hint), given, f"{key}.")
        if typing.get_origin(hint) is tuple:
            return self.items(typing.get_args(hint)[0], item, value, key)
        return self.checked(self.scalar(hint, value, key), item.metadata, key)

    def items(self, hint: Any, item: Field[Any], value: Any, key: str) -> tuple[Any, ...]:
        self.require(isinstance(value, list | tuple), key, f"must be a list, not {_word(value)}")
        found: list[Any] = [None] * len(value)
        for index, entry in enumerate(value):
            with self.noted():
                found[index] = self.value(hint, item, entry, f"{key}[{index}]")
        self.require(found or not item.metadata.get("nonempty"), key, "must name at least one")
        if item.metadata.get("unique"):
            twice = next(
                (entry for entry in found if entry is not None and found.count(entry) > 1), None
            )
            self.require(twice is None, key, f"names {twice!r} twice")
        return tuple(found)

    def scalar(self, hint: Any, value: Any, key: str) -> Any:
        if hint is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        is_right = isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
        self.require(is_right, key, f"must be {_TYPE_WORDS[hint]}, not {_word(value)}")
        is_right = hint is not float or math.isfinite(value)
        self.require(is_right, key, f"must be a number of finite size, not {value}")
        return value

    def checked(self, value: Any, checks: Mapping[str, Any], key: str) -> Any:
        for name, (is_right, problem) in _CHECKS.items():
            if name in checks:
                limit = ", ".join(checks[name]) if name == "choices" else checks[name]
                self.require(
                    is_right(value, checks[name]), key, problem.format(value=value, limit=limit)
                )
        if "form" in checks:
            problem = _FORMS[checks["form"]](value)
            self.require(not problem, key, problem)
        if "path" in checks:
            return self.path(value, checks["path"], key)
        return value

    def path(self, value: str, kind: str, key: str) -> str:
        if kind == "dfs" and value.lower().startswith(("http://", "https://", "s3://")):
            return value
        wanted = (
            "a directory, or http://NAMENODE:9870/PATH (WebHDFS), or s3://BUCKET/PREFIX"
            if kind == "dfs"
            else "a path"
        )
        self.require(not _ADDRESS.match(value), key, f"must be {wanted}, not {value!r}")
        if kind == "servers" and not KeyStorageConfig.is_sqlite(value):
            return value
        self.require(value and "\0" not in value, key, f"{value!r} is no path")
        given = os.path.expanduser(value)  # noqa: PTH111 - pathlib's raises where there is no such user
        return os.path.normpath(self.base.absolute() / given)


def _text_of(path: Path, key: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = (
            "is not UTF-8"
            if isinstance(error, UnicodeDecodeError)
            else f"cannot be read: {error.strerror}"
        )
        raise _OptionError(f"{key}: {path}: {why}") from None


def _network_problem(value: str) -> str:
    """Say why a text is no network; "" for a network.

    The text names the network that may be meant.
    """
    with suppress(ValueError):
        found = ipaddress.ip_network(value, strict=False)
        is_exact = ipaddress.ip_address(value.partition("/")[0]) == found.network_address
        return "" if is_exact else f"{value!r} has bits behind the mask: write {found}"
    return f"is not a network such as 127.0.0.0/8: {value!r}"


def _token_problem(value: str) -> str:
    """Say why a text is no product token; "" for a token.

    See RFC 9309, 2.2.1.
    """
    return "" if re.fullmatch(Pattern.TOKEN, value) else f"{value!r} {_TOKEN_WORDS}"


def _contact_problem(value: str) -> str:
    """Say why a contact reaches no person.

    "": it has mail addresses and URLs, or white space alone.
    """
    if all(_REACHABLE.fullmatch(word) for word in re.split(r"[\s,;]+", value) if word):
        return ""
    return f"{value!r} is neither a mail address (crawler@example.org) nor a URL (https://example.org/crawler)"


def _server_problem(value: str) -> str:
    """Say why a text is no server's address; "" for an address.

    No message repeats the text, for the text may hold a password.
    """
    try:
        parts = urlsplit(value)
        is_server = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return _SERVER_WORDS
    if "@" in parts.netloc:
        return "must have no user and no password: name both in the environment, or in Airflow's connection"
    return "" if is_server and _SERVER.fullmatch(value) else _SERVER_WORDS


_SERVER = re.compile(r"https?://[^\s?#\\]+", re.I)
_SERVER_WORDS = (
    "must be the address of a server, such as https://search.example.org:9200, without ? and #"
)
_HOST_WORDS = r"([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|\[[0-9A-Fa-f:.]+\])"
_REACHABLE = re.compile(
    rf"(mailto:)?[^\s@<>()\"]+@{_HOST_WORDS}|https?://{_HOST_WORDS}(:[0-9]+)?([/?#].*)?", re.I
)
_TOKEN_WORDS = (
    "must be the name alone, as robots.txt files have it: "
    "letters, - and _ (Krake adds its version and fetch.contact)"
)
_FORMS: dict[str, Callable[[str], str]] = {
    "network": _network_problem,
    "token": _token_problem,
    "contact": _contact_problem,
    "server": _server_problem,
}
"""Problems of a text of each form, in words."""


_Holds = Callable[[Any, Any], object]
_CHECKS: dict[str, tuple[_Holds, str]] = {
    "choices": (lambda value, choices: value in choices, "must be one of {limit}, not {value!r}"),
    "minimum": (operator.ge, "must be at least {limit}, not {value}"),
    "maximum": (operator.le, "must be at most {limit}, not {value}"),
    "pattern": (
        lambda value, pattern: re.fullmatch(pattern, value),
        "{value!r} does not match {limit}",
    ),
}
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def _word(value: object) -> str:
    return "nothing" if value is None else f"{value!r}"
