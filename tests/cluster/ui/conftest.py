"""The small web, and the crawl that a troubled one has to equal."""

from tests.dags.conftest import reference, serving

__all__ = ["reference", "serving"]
