"""The place of a crawl's config: the one order in which commands, `make` and the DAGs look for it."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from crawl_lib.errors import ConfigError, os_errors

CRAWLS_FOLDER = "crawls"
"""The folder in which `krake init crawls/NAME` makes the crawls of a project."""


class ConfigPlace:
    """The place of a config. `VARIABLE` of the environment may name the place; `DEFAULT` is the last one searched."""

    VARIABLE = "KRAKE_CONFIG_PATH"
    DEFAULT = Path("config") / "krake-config.yml"

    @classmethod
    def find(cls, environ: Mapping[str, str], *others: Path) -> Path:
        """Find the config that is used where no command line names one.

        A path that `KRAKE_CONFIG_PATH` of `environ` names is returned, even if it is a folder or does not exist.
        Otherwise the first of these files in the working directory is returned: `<folder>.yml`, named after that
        directory; the one config in `crawls/`, of several none; `config/krake-config.yml`. `others`: folders that are
        searched for the same files after the working directory.

        Raises ConfigError with the places that were searched; the operator names the config.
        """
        if named := environ.get(cls.VARIABLE):
            return Path(named)
        with os_errors(Path(), "the working directory cannot be read", ConfigError):
            here = Path.cwd()
            for path in (path for folder in (here, *others) for path in cls._candidates(folder)):
                if path.is_file():
                    return path
            several = [short_path(file) for file in cls.among(here / CRAWLS_FOLDER)]
        found = f"; of several configs none is chosen: {', '.join(several[:10])}" if several else ""
        raise ConfigError(
            f"{here}: there is neither {here.name}.yml nor one config in {CRAWLS_FOLDER}/ nor {cls.DEFAULT}{found}:"
            f" give --config FILE, set {cls.VARIABLE}, or make a crawl (krake init {CRAWLS_FOLDER}/NAME);"
            " krake --help lists the commands"
        )

    @classmethod
    def _candidates(cls, folder: Path) -> Iterator[Path]:
        yield folder / f"{folder.name}.yml"
        crawls = cls.among(folder / CRAWLS_FOLDER)
        if len(crawls) == 1:
            yield crawls[0]
        yield folder / cls.DEFAULT

    @staticmethod
    def among(folder: Path) -> list[Path]:
        """Return the `*.yml` of a folder and its subfolders.

        Links are resolved.
        """
        return sorted({file.resolve() for file in [*folder.glob("*.yml"), *folder.glob("*/*.yml")]})


def short_path(path: Path | str) -> str:
    """Return a path for a message.

    It is relative to the working directory where that is shorter, else absolute.
    """
    try:
        return min(os.path.relpath(path), str(Path(path).absolute()), key=len)
    except OSError:  # the working directory is gone
        return str(path)
