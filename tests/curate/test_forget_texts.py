"""`krake forget` and pages with equal words: the domain begins at 0 again, and a damaged file does not stop it."""

from pathlib import Path

from crawl_lib.curate.forget import _forget_texts
from crawl_lib.fetch import HostStore, TextRow, domain_number, make_hosts_folder


def test_texts_of_the_domain_are_forgotten(tmp_path: Path) -> None:
    with HostStore(make_hosts_folder(tmp_path)) as store:
        rows = [
            TextRow(domain_number(f"www.{name}.com"), 7, page, page)
            for page in range(3)
            for name in "ab"
        ]
        store.pages.add_texts(rows)
        store.pages.fill_texts({row.text for row in rows}, 3)
        _forget_texts(tmp_path, ["a.com"])
        assert {text.domain for text in store.pages.full_texts()} == {domain_number("b.com")}


def test_without_a_file_or_with_a_damaged_one_nothing_is_done(tmp_path: Path) -> None:
    _forget_texts(tmp_path, ["a.com"])
    (make_hosts_folder(tmp_path) / "hosts.sqlite").write_bytes(b"no database" * 1000)
    _forget_texts(tmp_path, ["a.com"])
