"""A local file store and a maker of segments, as the tests of the export have them."""

from tests.export.conftest import crawl, storage

__all__ = ["crawl", "storage"]
