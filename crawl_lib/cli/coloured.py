"""Help in colours, for terminals."""

import argparse
from typing import ClassVar

from rich_argparse import RawDescriptionRichHelpFormatter, RichHelpFormatter


class _Help(RichHelpFormatter):
    """Colours the words that argparse writes, and changes none: text in brackets is no style."""

    group_name_formatter = str
    help_markup: ClassVar[bool] = False
    text_markup: ClassVar[bool] = False


class _RawHelp(_Help, RawDescriptionRichHelpFormatter):
    """The same, and keeps the lines of the description."""


def coloured(prog: str, *, is_raw: bool) -> argparse.HelpFormatter:
    """Return a formatter in colours. `is_raw`: the description keeps its lines."""
    return _RawHelp(prog) if is_raw else _Help(prog)
