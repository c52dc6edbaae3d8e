"""Dataclasses that cost little to load: each method is compiled at its first use."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

_LEFT: list[tuple[type[Any], str]] = []
"""Methods not compiled yet, each with its class. A compiled method may still be listed."""

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(kind=None, /, *, frozen=False, kw_only=False, **others):
        """Make a class a dataclass that compiles methods at first use.

        The result equals a dataclass of the standard library. Python compiles up to six methods for each class, in
        0.4 ms. A command loads a hundred classes, and makes objects of a dozen. With other options, and for subclasses
        of a dataclass, all methods are compiled at once.
        """
        if kind is None:
            return lambda given: dataclass(given, frozen=frozen, kw_only=kw_only, **others)
        if others or dataclasses.is_dataclass(kind):
            return dataclasses.dataclass(kind, frozen=frozen, kw_only=kw_only, **others)
        dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(kind)
        kind.__dataclass_params__.frozen = frozen
        for name in ("__init__", "__repr__", "__eq__", "__hash__"):
            if vars(kind).get(name) is None:  # Python puts a None where a class has an __eq__ alone
                setattr(kind, name, _at_first_use(kind, name))
        if frozen:
            kind.__setattr__, kind.__delattr__ = _refusal("assign to"), _refusal("delete")
        else:
            kind.__hash__ = None
        return kind


def _refusal(verb: str) -> Callable[..., None]:
    """Return the method that a frozen class has as `__setattr__` or `__delattr__`."""

    def refuse(one: object, name: str, value: object = None) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot {verb} field {name!r}")

    return refuse


def compile_all() -> None:
    """Compile the remaining methods before a process forks others.

    Otherwise each forked process would compile the methods again.
    """
    while _LEFT:
        _compile(*_LEFT.pop())


def _at_first_use(kind: type[Any], name: str) -> Callable[..., Any]:
    """Return a method that compiles a method at its first call.

    The first call then goes on to the compiled method.
    """
    _LEFT.append((kind, name))

    def method(*arguments: Any, **named: Any) -> Any:
        return _compile(kind, name)(*arguments, **named)

    return method


def _compile(kind: type[Any], name: str) -> Callable[..., Any]:
    """Compile a dataclass's method, put it in place, and return it."""
    # No function of the standard library makes one method. A subclass has the same fields.
    wanted = {
        "init": name == "__init__",
        "repr": name == "__repr__",
        "eq": name in ("__eq__", "__hash__"),
    }
    namespace = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    made = type(kind.__name__, (kind,), namespace)
    dataclasses.dataclass(frozen=kind.__dataclass_params__.frozen, **wanted)(made)
    method: Callable[..., Any] = vars(made)[name]
    setattr(kind, name, method)
    return method
