"""The text of a PDF, by pypdfium2. Only child processes use this module: a small file may describe gigabytes."""

from typing import NamedTuple

from pypdfium2 import PdfDocument, PdfiumError

MAX_PAGES = 20_000
"""Limit of pages to read: a file may claim billions."""
_HYPHEN = "\x02"
"""PDFium writes this character for the hyphen of a word that continues in the next line."""
_NO_TEXT = dict.fromkeys([0, 0xFFFE, 0xFFFF])


class PdfText(NamedTuple):
    """Text of a PDF. `title`: of its metadata, "" without one."""

    title: str
    text: str


def pdf_text(data: bytes, max_chars: int) -> PdfText:
    """Read the text of a PDF up to `max_chars`.

    A line break separates pages; damaged pages have no text. Raises ValueError if the file cannot be read, or needs a
    password.
    """
    try:
        document = PdfDocument(data)
    except PdfiumError as error:
        raise ValueError(str(error)) from None
    with document:
        pages: list[str] = []
        for number in range(min(len(document), MAX_PAGES)):
            text = _page_text(document, number)
            pages += [text] if text else []
            max_chars -= len(text)
            if max_chars <= 0:
                break
        return PdfText(_clean(document.get_metadata_value("Title")).strip(), "\n".join(pages))


def _page_text(document: PdfDocument, number: int) -> str:
    try:
        page = document[number]
        try:
            return _clean(page.get_textpage().get_text_bounded())
        finally:
            page.close()
    except PdfiumError:
        return ""


def _clean(text: str) -> str:
    return text.replace(_HYPHEN, "").replace("\r\n", "\n").translate(_NO_TEXT)
