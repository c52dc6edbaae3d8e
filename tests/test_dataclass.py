"""`crawl_lib.dataclass`: the classes are as those of the standard library, and little is compiled early."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from crawl_lib.dataclass import compile_all
from crawl_lib.dataclass import dataclass as lazy_dataclass

Decorator = Callable[..., Any]


def point(dataclass: Decorator, **options: Any) -> Any:
    """Make a class with a decorator."""

    class Point:
        """A point."""

        x: int
        names: list[str] = dataclasses.field(default_factory=list, repr=False, compare=False)
        y: int = 2
        sums: int = dataclasses.field(init=False, default=0)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("x")

    return dataclass(**options)(Point) if options else dataclass(Point)


def answer(call: Callable[[], object]) -> object:
    """Return what a call returns, or how it fails."""
    try:
        return call()
    except (TypeError, ValueError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"


OPTIONS: list[dict[str, Any]] = [
    {},
    {"frozen": True},
    {"kw_only": True},
    {"frozen": True, "slots": True},
    {"order": True},
]
CALLS: dict[str, Callable[[Any], object]] = {
    "text": lambda kind: repr(kind(x=1, y=3)),
    "equal": lambda kind: (
        kind(x=1) == kind(x=1, names=["a"]),
        kind(x=1) == kind(x=2),
        kind(x=1) == 1,
    ),
    "hash": lambda kind: hash(kind(x=1)) == hash(kind(x=1)),
    "missing": lambda kind: kind(),
    "unknown": lambda kind: kind(x=1, z=1),
    "position": lambda kind: dataclasses.astuple(kind(1, ["a"], 3)),
    "checked": lambda kind: kind(x=-1),
    "set": lambda kind: setattr(kind(x=1), "y", 5),
    "deleted": lambda kind: delattr(kind(x=1), "y"),
    "replaced": lambda kind: dataclasses.asdict(dataclasses.replace(kind(x=1), x=7)),
    "copied": lambda kind: dataclasses.astuple(copy.copy(kind(x=1))),
    "fields": lambda kind: ([one.name for one in dataclasses.fields(kind)], kind.__match_args__),
    "subclass": lambda kind: (
        repr(type("Below", (kind,), {})(x=1)),
        type("Below", (kind,), {})(x=1) == kind(x=1),
    ),
}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_a_class_is_as_the_standard_library_makes_it(name: str, options: dict[str, Any]) -> None:
    """Asked twice: before and after the first use of a method."""
    ours, theirs = point(lazy_dataclass, **options), point(dataclasses.dataclass, **options)
    expected = answer(lambda: CALLS[name](theirs))
    assert [answer(lambda: CALLS[name](ours)) for _ in range(2)] == [expected] * 2


@lazy_dataclass(frozen=True)
class Kept:
    """A class that pickle finds."""

    x: int


@lazy_dataclass(frozen=True)
class Below(Kept):
    """A subclass with one more field."""

    y: int = 0


def test_objects_are_pickled_and_dataclasses_have_subclasses() -> None:
    assert pickle.loads(pickle.dumps(Kept(3))) == Kept(3)
    assert (Below(1, 2).y, Below(1) == Below(1)) == (2, True)


def test_a_method_of_a_class_itself_stays() -> None:
    class Named:  # noqa: PLW1641 - Python calls it without a hash, a frozen dataclass has one
        x: int = 0

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "named"

    named: Any = lazy_dataclass(frozen=True)(Named)
    assert (repr(named(1)), named(1) == 5, hash(named(1)) == hash(named(1))) == (
        "named",
        True,
        True,
    )


def test_only_what_is_used_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile_one = dataclasses._create_fn  # type: ignore[attr-defined]

    def noting(name: str, *arguments: Any, **named: Any) -> Any:
        compiled.append(name)
        return compile_one(name, *arguments, **named)

    monkeypatch.setattr(dataclasses, "_create_fn", noting)
    kind = point(lazy_dataclass)
    assert not compiled
    kind(x=1), kind(x=2)
    assert compiled == ["__init__"]


def test_a_process_that_forks_others_compiles_all_before() -> None:
    kind = point(lazy_dataclass, frozen=True)
    compile_all()
    early = {name: vars(kind)[name] for name in ("__init__", "__repr__", "__eq__", "__hash__")}
    assert (kind(x=1), hash(kind(x=1)), repr(kind(x=1))) == (
        kind(x=1),
        hash(kind(x=1)),
        repr(kind(x=1)),
    )
    assert {name: vars(kind)[name] for name in early} == early
