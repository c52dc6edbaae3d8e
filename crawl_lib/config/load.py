"""YAML file -> `Config`: unknown keys, wrong types and impossible values are one clear line each."""

import difflib
import ipaddress
import json
import math
import operator
import os
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

from crawl_lib.config.model import Config
from crawl_lib.errors import ConfigError, os_errors

CONFIG_PATH_VARIABLE = "KRAKE_CONFIG_PATH"
_TYPE_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def find_config_path(environ: Mapping[str, str]) -> Path:
    """The config file that `KRAKE_CONFIG_PATH` of `environ` names, else `config/krake-config.yml` in this directory.

    Raises ConfigError if there is none: the operator sets the variable.
    """
    named = environ.get(CONFIG_PATH_VARIABLE)
    path = Path(named or "config/krake-config.yml")
    if not path.is_file():
        hint = f"{CONFIG_PATH_VARIABLE} names it" if named else f"give --config FILE, or set {CONFIG_PATH_VARIABLE}"
        raise ConfigError(f"{path}: no such config file ({hint})")
    return path.resolve()


def load_config(path: Path | str | None = None) -> Config:
    """Read and check a config file.

    `path`: the YAML file; None looks at `KRAKE_CONFIG_PATH`. Raises ConfigError naming file, key and the nearest
    valid key; the operator corrects the file.
    """
    import yaml  # noqa: PLC0415 - not for fetching processes, which get their config as JSON

    file = Path(path).resolve() if path is not None else find_config_path(os.environ)
    try:
        with os_errors(file, "cannot be read", ConfigError):
            text = file.read_text(encoding="utf-8")
        _require_once(yaml.compose(text, yaml.SafeLoader), str(file))
        mapping = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # 2024-99-99 is no date, and a ValueError
        raise ConfigError(f"{file}: is not YAML: {' '.join(str(error).split())}") from error
    return from_mapping(mapping, base=file.parent, source=str(file))


def _require_once(node: Any, source: str, prefix: str = "") -> None:
    """Raise ConfigError for a section or option that is there twice: YAML would take the last one, and say nothing.

    `node`: of YAML. Sections are mappings in a mapping, and no deeper, so lists are not looked into.
    """
    if getattr(node, "id", "") != "mapping":
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        name, line = prefix + str(key.value), key.start_mark.line + 1
        if name in lines:
            raise ConfigError(f"{source}: {name}: is there twice, in lines {lines[name]} and {line}; put both together")
        lines[name] = line
        if not prefix:
            _require_once(value, source, f"{name}.")


def from_mapping(mapping: object, base: Path, source: str = "config") -> Config:
    """Build a `Config` from parsed YAML. Raises ConfigError naming `source`, the option, and what is wrong with it.

    `mapping`: sections and options by name. `base`: the folder that relative local paths are relative to; they are
    absolute from here on, so that child processes and a changed working directory mean the same.
    """
    config = _Reader(source, base).section(Config, mapping, "")
    _check_together(config, source)
    return typing.cast(Config, config)


def to_mapping(config: Config) -> dict[str, Any]:
    """The plain form of a config: `from_mapping(to_mapping(c), base)` equals `c`."""
    return typing.cast(dict[str, Any], json.loads(json.dumps(asdict(config))))


_TAKEN_NAMES = {"default": "Airflow's queue of the tasks that belong to no node", "import": "imported segments"}


def _check_together(config: Any, source: str) -> None:
    """Raise ConfigError for options that do not go together."""
    keys = config.key_storage
    problems = [
        *(
            (name in config.servers, f"servers: {name!r} is the name of {meaning}; name the node otherwise")
            for name, meaning in _TAKEN_NAMES.items()
        ),
        (
            keys.replication > len(keys.servers),
            f"key_storage.replication: {keys.replication} replicas need as many servers, not {len(keys.servers)}",
        ),
        (
            len({is_sqlite_server(server) for server in keys.servers}) > 1,
            "key_storage.servers: SQLite files and MySQL servers cannot be mixed",
        ),
        (
            keys.ca_file is not None and keys.tls != "verify",
            "key_storage.ca_file: certificates are looked at with key_storage.tls: verify only",
        ),
        *_delay_problems(config.fetch),
        (
            config.crawl.directory.strip("/") == config.export.directory.strip("/"),
            "export.directory: must differ from crawl.directory",
        ),
    ]
    for is_wrong, problem in problems:
        if is_wrong:
            raise ConfigError(f"{source}: {problem}")


def _delay_problems(fetch: Any) -> Iterator[tuple[bool, str]]:
    """Several connections to a host, and a delay from the end of one answer to the next request, cannot be had both."""
    given = [("fetch.connections_per_host", fetch.connections_per_host, "fetch.host_delay_s", fetch.host_delay_s)]
    for index, entry in enumerate(fetch.hosts):
        where, problem = f"fetch.hosts[{index}]", _host_problem(entry)
        yield problem is not None, f"{where}.value: {problem}"
        delay_s = fetch.host_delay_s if entry.delay_s is None else entry.delay_s
        connections = fetch.connections_per_host if entry.connections is None else entry.connections
        given.append((f"{where}.connections", connections, f"{where}.delay_s", delay_s))
    for name, connections, delay_name, delay_s in given:
        yield connections > 1 and delay_s > 0, f"{name}: more than 1 needs a {delay_name} of 0"
        adapts = fetch.adaptive_delay_factor is not None
        yield connections > 1 and adapts, f"{name}: more than 1 needs a fetch.adaptive_delay_factor of null"


_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")


def _host_problem(entry: Any) -> str | None:
    """Why an entry of `fetch.hosts` matches nothing."""
    if entry.kind == "regex":
        try:
            re.compile(entry.value)
        except (re.error, OverflowError, RecursionError) as error:
            return f"{entry.value!r} is not a regular expression: {error}"
    elif not _HOST.fullmatch(entry.value):
        return (
            f"{entry.value!r} is no host as URLs have it: in lower case, other letters as xn--,"
            " addresses in their shortest form, without port or star"
        )
    return None


def is_sqlite_server(server: str) -> bool:
    """Whether a name in `key_storage.servers` is a path of a SQLite file (it has a slash or ends in .sqlite)."""
    return "/" in server or server.endswith(".sqlite")


class _Reader:
    """Reads sections of one file; every error names the file and the key."""

    def __init__(self, source: str, base: Path) -> None:
        self.source, self.base = source, base

    def require(self, is_right: object, key: str, problem: str) -> None:
        if not is_right:
            raise ConfigError(f"{self.source}: {key}: {problem}")

    def section(self, kind: type, mapping: Any, prefix: str) -> Any:
        where = prefix.rstrip(".") or "the file"
        self.require(isinstance(mapping, dict), where, f"must be a mapping of options, not {_word(mapping)}")
        known = {item.name: item for item in fields(kind)}
        for key in mapping:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)[0]
                self.require(False, f"{prefix}{key}", f"unknown option; the nearest valid one is {prefix}{near}")
        values: dict[str, Any] = {}
        for name, item in known.items():
            given = mapping.get(name, item.default)
            self.require(given is not MISSING, prefix + name, "is missing, and has no default")
            values[name] = self.value(item.type, item, given, prefix + name)
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
        items = tuple(self.value(hint, item, entry, f"{key}[{index}]") for index, entry in enumerate(value))
        self.require(items or not item.metadata.get("nonempty"), key, "must name at least one")
        if item.metadata.get("unique"):
            twice = next((entry for entry in items if items.count(entry) > 1), None)
            self.require(twice is None, key, f"names {twice!r} twice")
        return items

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
                self.require(is_right(value, checks[name]), key, problem.format(value=value, limit=limit))
        if "path" in checks:
            return self.path(value, checks["path"], key)
        return value

    def path(self, value: str, kind: str, key: str) -> str:
        if kind == "dfs" and value.lower().startswith(("http://", "https://")):
            return value
        wanted = "a directory, or http://NAMENODE:9870/PATH (WebHDFS)" if kind == "dfs" else "a path"
        self.require(not _ADDRESS.match(value), key, f"must be {wanted}, not {value!r}")
        if kind == "servers" and not is_sqlite_server(value):
            return value
        self.require(value and "\0" not in value, key, f"{value!r} is no path")
        given = os.path.expanduser(value)  # noqa: PTH111 - pathlib's raises where there is no such user
        return os.path.normpath(self.base.absolute() / given)


def _is_network(value: str, _: object) -> bool:
    try:
        return bool(ipaddress.ip_network(value))
    except ValueError:
        return False


_CHECKS: dict[str, tuple[Callable[[Any, Any], object], str]] = {
    "choices": (lambda value, choices: value in choices, "must be one of {limit}, not {value!r}"),
    "minimum": (operator.ge, "must be at least {limit}, not {value}"),
    "maximum": (operator.le, "must be at most {limit}, not {value}"),
    "pattern": (lambda value, pattern: re.fullmatch(pattern, value), "{value!r} does not match {limit}"),
    "networks": (_is_network, "is not a network such as 127.0.0.0/8: {value!r}"),
}
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def _word(value: object) -> str:
    return "nothing" if value is None else f"{value!r}"
