"""A local file store and a maker of segments for the tests of files as Common Crawl has them."""

from tests.export.conftest import crawl, storage

__all__ = ["crawl", "storage"]
