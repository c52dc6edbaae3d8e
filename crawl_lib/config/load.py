"""YAML file -> `Config`: unknown keys, wrong types and impossible values are one clear line each."""

import difflib
import ipaddress
import json
import math
import os
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

from crawl_lib.config.model import Config
from crawl_lib.errors import ConfigError, os_error

CONFIG_PATH_VARIABLE = "KRAKE_CONFIG_PATH"
_TYPE_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def find_config_path(environ: Mapping[str, str]) -> Path:
    """The config file that `KRAKE_CONFIG_PATH` of `environ` names, else `config/krake-config.yml` in this directory.

    Raises ConfigError if there is none: the operator sets the variable.
    """
    named = environ.get(CONFIG_PATH_VARIABLE)
    path = Path(named) if named else Path("config/krake-config.yml")
    if not path.is_file():
        hint = (
            f"{CONFIG_PATH_VARIABLE} names {named}" if named else f"give --config FILE, or set {CONFIG_PATH_VARIABLE}"
        )
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
        text = file.read_text(encoding="utf-8")
        _require_once(yaml.compose(text, yaml.SafeLoader), str(file))
        mapping = yaml.safe_load(text)
    except OSError as error:
        raise os_error(error, file, "cannot be read", ConfigError) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
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
    keys = config.key_storage
    for name in _TAKEN_NAMES.keys() & set(config.servers):
        raise ConfigError(f"{source}: servers: {name!r} is the name of {_TAKEN_NAMES[name]}; name the node otherwise")
    if keys.replication > len(keys.servers):
        raise ConfigError(
            f"{source}: key_storage.replication: {keys.replication} replicas need as many servers,"
            f" and key_storage.servers names {len(keys.servers)}"
        )
    if len({is_sqlite_server(server) for server in keys.servers}) > 1:
        raise ConfigError(f"{source}: key_storage.servers: SQLite files and MySQL servers cannot be mixed")
    if keys.ca_file is not None and keys.tls != "verify":
        raise ConfigError(
            f"{source}: key_storage.ca_file: certificates are looked at with key_storage.tls: verify only"
        )
    _check_delays(config.fetch, source)
    if config.crawl.directory.strip("/") == config.export.directory.strip("/"):
        raise ConfigError(f"{source}: export.directory: must differ from crawl.directory")


def _check_delays(fetch: Any, source: str) -> None:
    """Several connections to a host, and a delay from the end of one answer to the next request, cannot be had both."""
    given = [("fetch.connections_per_host", fetch.connections_per_host, "fetch.host_delay_s", fetch.host_delay_s)]
    for index, entry in enumerate(fetch.hosts):
        where = f"fetch.hosts[{index}]"
        _check_host(entry, f"{source}: {where}.value")
        delay_s = fetch.host_delay_s if entry.delay_s is None else entry.delay_s
        connections = fetch.connections_per_host if entry.connections is None else entry.connections
        given.append((f"{where}.connections", connections, f"{where}.delay_s", delay_s))
    for name, connections, delay_name, delay_s in given:
        if connections > 1 and delay_s > 0:
            raise ConfigError(f"{source}: {name}: more than 1 needs a {delay_name} of 0")
        if connections > 1 and fetch.adaptive_delay_factor is not None:
            raise ConfigError(f"{source}: {name}: more than 1 needs a fetch.adaptive_delay_factor of null")


_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")


def _check_host(entry: Any, where: str) -> None:
    if entry.kind == "domain":
        if not _HOST.fullmatch(entry.value):
            raise ConfigError(
                f"{where}: {entry.value!r} is no host as URLs have it: in lower case, other letters as xn--,"
                " addresses in their shortest form, without port or star"
            )
        return
    try:
        re.compile(entry.value)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{where}: {entry.value!r} is not a regular expression: {error}") from None


def is_sqlite_server(server: str) -> bool:
    """Whether a name in `key_storage.servers` is a path of a SQLite file (it has a slash or ends in .sqlite)."""
    return "/" in server or server.endswith(".sqlite")


class _Reader:
    """Reads sections of one file; every error names the file and the key."""

    def __init__(self, source: str, base: Path) -> None:
        self.source = source
        self.base = base

    def fail(self, key: str, problem: str) -> typing.NoReturn:
        raise ConfigError(f"{self.source}: {key}: {problem}")

    def section(self, kind: type, mapping: object, prefix: str) -> Any:
        if not isinstance(mapping, dict):
            where = prefix.rstrip(".") or "the file"
            self.fail(where, f"must be a mapping of options, not {_word(mapping)}")
        known = {item.name: item for item in fields(kind)}
        for key in mapping:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)[0]
                self.fail(f"{prefix}{key}", f"unknown option; the nearest valid one is {prefix}{near}")
        hints = typing.get_type_hints(kind)
        values: dict[str, Any] = {}
        for name, item in known.items():
            given = mapping.get(name, item.default)
            if given is MISSING:
                self.fail(prefix + name, "is missing, and has no default")
            values[name] = self.value(hints[name], item, given, prefix + name)
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
        if not isinstance(value, list | tuple):
            self.fail(key, f"must be a list, not {_word(value)}")
        if is_dataclass(hint):
            return tuple(
                self.section(typing.cast(type, hint), entry, f"{key}[{index}].") for index, entry in enumerate(value)
            )
        checks = item.metadata
        found = tuple(
            self.checked(self.scalar(hint, entry, f"{key}[{index}]"), checks, f"{key}[{index}]")
            for index, entry in enumerate(value)
        )
        if checks.get("nonempty") and not found:
            self.fail(key, "must name at least one")
        if checks.get("unique") and len(set(found)) < len(found):
            twice = next(entry for entry in found if found.count(entry) > 1)
            self.fail(key, f"names {twice!r} twice")
        return found

    def scalar(self, hint: Any, value: Any, key: str) -> Any:
        if hint is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
            self.fail(key, f"must be {_TYPE_WORDS[hint]}, not {_word(value)}")
        if hint is float and not math.isfinite(value):
            self.fail(key, f"must be a number of finite size, not {value}")
        return value

    def checked(self, value: Any, checks: Mapping[str, Any], key: str) -> Any:
        if "choices" in checks and value not in checks["choices"]:
            self.fail(key, f"must be one of {', '.join(checks['choices'])}, not {value!r}")
        if "minimum" in checks and not value >= checks["minimum"]:
            self.fail(key, f"must be at least {checks['minimum']}, not {value}")
        if "maximum" in checks and not value <= checks["maximum"]:
            self.fail(key, f"must be at most {checks['maximum']}, not {value}")
        if "pattern" in checks and not re.fullmatch(checks["pattern"], value):
            self.fail(key, f"{value!r} does not match {checks['pattern']}")
        if "networks" in checks:
            self.network(value, key)
        if "path" in checks:
            return self.path(value, checks["path"], key)
        return value

    def network(self, value: str, key: str) -> None:
        try:
            ipaddress.ip_network(value)
        except ValueError as error:
            self.fail(key, f"is not a network such as 127.0.0.0/8: {error}")

    def path(self, value: str, kind: str, key: str) -> str:
        if kind == "dfs" and value.lower().startswith(("http://", "https://")):
            return value
        if _ADDRESS.match(value):
            wanted = "a directory, or http://NAMENODE:9870/PATH (WebHDFS)" if kind == "dfs" else "a path"
            self.fail(key, f"must be {wanted}, not {value!r}")
        if kind == "servers" and not is_sqlite_server(value):
            return value
        try:
            given = Path(os.path.expanduser(value))  # noqa: PTH111 - pathlib's raises where there is no such user
        except RuntimeError:
            self.fail(key, f"{value!r}: there is no such user")
        if not value or "\0" in value:
            self.fail(key, f"{value!r} is no path")
        return os.path.normpath(self.base.absolute() / given)


_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def _word(value: object) -> str:
    return "nothing" if value is None else f"{value!r}"
