"""The config's place of the file store, and the way to reach the store."""

import re
from dataclasses import field, replace
from typing import NamedTuple
from urllib.parse import urlsplit

from crawl_lib.config import Config
from crawl_lib.dataclass import dataclass
from crawl_lib.errors import ConfigError


class DfsAddress(NamedTuple):
    """`namenodes`: scheme, host and port of each; `root`: absolute path, "" for the root of the file system."""

    namenodes: tuple[str, ...]
    root: str

    def __str__(self) -> str:
        return ";".join(self.namenodes) + self.root


def parse_address(text: str) -> DfsAddress:
    """Parse an address such as `http://nn1:9870;http://nn2:9870/path`.

    The root path follows the last namenode, or each. Raises ConfigError: the operator corrects `dfs_primary`.
    """
    authorities = [part.partition("://")[2].partition("/")[0] for part in text.split(";")]
    if any("@" in authority for authority in authorities):
        raise ConfigError(
            "dfs_primary: no user and password in the address; dfs.user names the user"
        )
    try:
        parts = [urlsplit(part.strip()) for part in text.split(";") if part.strip()]
        have_ports = all(part.port != 0 for part in parts)
    except ValueError as error:
        raise ConfigError(f"dfs_primary: {text}: {error}") from error
    paths = {part.path.rstrip("/") for part in parts[:-1]}
    root = parts[-1].path.rstrip("/")
    if not paths <= {"", root}:
        raise ConfigError(
            f"dfs_primary: {text}: the namenodes' paths differ; give one path, behind the last namenode"
        )
    for part in parts:
        if (
            part.scheme not in {"http", "https"}
            or not part.netloc
            or part.query
            or part.fragment
            or not have_ports
        ):
            raise ConfigError(
                f"dfs_primary: {text}: each namenode is http://host:port or https://host:port, no more"
            )
    if any(name in {"", ".", ".."} or ":" in name for name in root.split("/")[1:]):
        raise ConfigError(f"dfs_primary: {text}: {root} is no path of HDFS")
    return DfsAddress(tuple(f"{part.scheme}://{part.netloc}" for part in parts), root)


@dataclass(frozen=True)
class DfsAccess:
    """How HDFS is reached where Airflow's connection says it instead of the config; None: as the config does.

    `namenodes`: scheme, host and port of each (`https://nn1:9871`); `user`; `ca_file`, `cert_file`, `key_file`: paths.
    """

    namenodes: tuple[str, ...] | None = None
    user: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def applied(self, config: Config) -> Config:
        """Return the config with this access.

        A config with a local directory stays unchanged. The root path of `dfs_primary` stays. Raises ConfigError if
        `dfs_primary` is no address.
        """
        if not is_hdfs(config):
            return config
        address = config.dfs_primary
        if self.namenodes:
            address = ";".join(self.namenodes) + parse_address(address).root
        given = {name: value for name, value in vars(self).items() if value and name != "namenodes"}
        return replace(config, dfs_primary=address, dfs=replace(config.dfs, **given))


class S3Address(NamedTuple):
    """A bucket, and the prefix of all keys: "" or a path that ends with a slash."""

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


def parse_s3_address(text: str) -> S3Address:
    """Return the bucket and the prefix of `s3://bucket/prefix`.

    Raises ConfigError: the operator corrects `dfs_primary`.
    """
    rest = text[len("s3://") :]
    bucket, _, path = rest.partition("/")
    if "@" in bucket:
        raise ConfigError(
            "dfs_primary: no credentials in the address; docs/storage.md says where they come from"
        )
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", bucket):
        raise ConfigError(
            f"dfs_primary: {text}: must be s3://BUCKET/PREFIX, and {bucket!r} is no name of a bucket"
        )
    prefix = path.rstrip("/")
    steps = prefix.split("/") if prefix else []
    if any(step in {".", ".."} or not re.fullmatch(r"[\w.=-]+", step) for step in steps):
        raise ConfigError(
            f"dfs_primary: {text}: {prefix!r} must be names of letters, digits, . _ = - with / between"
        )
    return S3Address(bucket, f"{prefix}/" if prefix else "")


@dataclass(frozen=True)
class S3Credentials:
    """Credentials from Airflow's connection, if any; `repr` hides it. `token`: of a session."""

    key_id: str = field(repr=False)
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)

    def words(self) -> dict[str, str | None]:
        """Return the arguments of botocore's client."""
        names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        return dict(zip(names, (self.key_id, self.secret, self.token), strict=True))


def shown_address(config: Config) -> str:
    """Return how people name the store, without asking the store."""
    return (
        str(parse_s3_address(config.dfs_primary))
        if is_s3(config)
        else config.dfs_primary.rstrip("/")
    )


def is_local(config: Config) -> bool:
    """Say whether `dfs_primary` is a directory of this machine."""
    return not is_hdfs(config) and not is_s3(config)


def is_s3(config: Config) -> bool:
    """Say whether `dfs_primary` names a bucket of an object store."""
    return config.dfs_primary.lower().startswith("s3://")


def is_hdfs(config: Config) -> bool:
    """Say whether `dfs_primary` names namenodes, not a directory."""
    return config.dfs_primary.lower().startswith(("http://", "https://"))
