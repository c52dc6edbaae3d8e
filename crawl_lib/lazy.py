"""Names of a package whose modules take long to load, and are loaded at the first use (PEP 562)."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loads_later(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    `modules`: the names in each module of the package, by module. The returned function raises AttributeError for other
    names, as Python requires.
    """
    module_of = {name: module for module, names in modules.items() for name in names}
    # Python makes a loaded module an attribute of its package, under the module's name.
    assert not module_of.keys() & modules.keys(), f"{package} has a module in the place of a name"

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    return get
