"""Filters as links: the query of each link has one filter more, or less."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

from crawl_lib.search import Group, PartKind, QueryPart, QueryReading, is_filter

ANY = ""
TIMES = (("Any time", None), ("Past week", 7), ("Past month", 31), ("Past year", 365))
"""Labels, and days before today."""
TYPES = (("Any type", ANY), ("Web pages", "html"), ("PDF", "pdf"), ("Plain text", "text"))
LANGUAGES = {
    "da": "Danish",
    "de": "German",
    "en": "English",
    "es": "Spanish",
    "fi": "Finnish",
    "fr": "French",
    "hu": "Hungarian",
    "it": "Italian",
    "nl": "Dutch",
    "no": "Norwegian",
    "pt": "Portuguese",
    "ru": "Russian",
    "sv": "Swedish",
}


@dataclass(frozen=True)
class Choice:
    """One choice of a menu, or a filter to take away. `query`: the query of the link."""

    label: str
    query: str
    is_chosen: bool = False


@dataclass(frozen=True)
class Menu:
    """A list of choices. `label`: the label of the current choice."""

    name: str
    label: str
    choices: tuple[Choice, ...]

    @property
    def is_used(self) -> bool:
        """Whether the current choice is not the default."""
        return not self.choices[0].is_chosen


def menus(reading: QueryReading, languages: Sequence[str], today: date) -> list[Menu]:
    """Return the menus of a query. `languages`: the languages of the index."""
    times = [
        (label, ANY if days is None else str(today - timedelta(days))) for label, days in TIMES
    ]
    by_name = sorted((LANGUAGES.get(code, code), code) for code in languages)
    named = [("Any language", ANY), *by_name]
    return [
        _menu(reading, "Time", PartKind.AFTER, times),
        _menu(reading, "Type", PartKind.TYPE, TYPES),
        _menu(reading, "Language", PartKind.LANGUAGE, named),
        _order(reading),
    ]


def chips(reading: QueryReading) -> Iterator[Choice]:
    """Yield the query's filters outside the menus, as choices.

    Each has the query without the filter.
    """
    for group in reading.groups:
        if is_filter(group) and _shown_by_menu(group) is None:
            rest = tuple(other for other in reading.groups if other is not group)
            yield Choice(" OR ".join(map(str, group)), str(replace(reading, groups=rest)))


def with_filter(reading: QueryReading, kind: PartKind, value: str) -> str:
    """Return the query with another filter of a kind.

    The new filter replaces the filter of the menu; `ANY`: without a filter.
    """
    kept = tuple(group for group in reading.groups if _shown_by_menu(group) is not kind)
    added = ((QueryPart(kind, value),),) if value else ()
    return str(replace(reading, groups=(*kept, *added)))


def _shown_by_menu(group: Group) -> PartKind | None:
    """Return the kind of a group in a menu, or None.

    A menu has a single filter without a minus.
    """
    [part, *others] = group
    is_plain = not others and not part.is_excluded
    return (
        part.kind
        if is_plain and part.kind in {PartKind.AFTER, PartKind.TYPE, PartKind.LANGUAGE}
        else None
    )


def _menu(
    reading: QueryReading, name: str, kind: PartKind, values: Collection[tuple[str, str]]
) -> Menu:
    asked = next((group[0].text for group in reading.groups if _shown_by_menu(group) is kind), ANY)
    if asked not in [value for _, value in values]:
        values = [*values, (f"Since {asked}" if kind is PartKind.AFTER else asked, asked)]
    choices = tuple(
        Choice(label, with_filter(reading, kind, value), value == asked) for label, value in values
    )
    return Menu(name, next(one.label for one in choices if one.is_chosen), choices)


def _order(reading: QueryReading) -> Menu:
    labels = {False: "Best first", True: "Newest first"}
    choices = tuple(
        Choice(label, str(replace(reading, by_date=by_date)), by_date == reading.by_date)
        for by_date, label in labels.items()
    )
    return Menu("Order", labels[reading.by_date], choices)
