"""Names of a package whose modules take long to load, and are loaded at the first use (PEP 562)."""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

_IMPORT = re.compile(r"^    from (\S+) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)


def loads_later(package: str, file: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    `file`: the package's source. Its imports under `if TYPE_CHECKING:` are the names that are loaded later, so that the
    names are listed once. The returned function raises AttributeError for other names, as Python requires.
    """
    source = Path(file).read_text("utf-8")
    block = source.partition("\nif TYPE_CHECKING:\n")[2].partition("\nelse:\n")[0]
    module_of = {
        name: module
        for module, several, one in _IMPORT.findall(block)
        for name in re.findall(r"\w+", several or one)
    }
    # Python makes a loaded module an attribute of its package, under the module's name.
    modules = {module.removeprefix(f"{package}.") for module in module_of.values()}
    assert not module_of.keys() & modules, f"{package} has a module in the place of a name"

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module_of[name]), name)

    return get
