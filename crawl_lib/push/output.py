"""The pages in OpenSearch as an output: made by a push, and asked for dropped pages."""

import logging
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from itertools import islice

from crawl_lib.derived import Output, PagePlace, Pages
from crawl_lib.errors import ConfigError, SearchServerError
from crawl_lib.push.cluster import Cluster
from crawl_lib.push.push import PushReport, alias_of, push_index
from crawl_lib.stores import Stores

ASKED_PAGES = 1000
"""Pages of a question."""
ABSENT = 404
_UNTIL = "`krake index update`, then `krake index push` deletes them there"
log = logging.getLogger(__name__)


class PushOutput(Output):
    """The pages in OpenSearch. The output has no files in the crawl, so checks and sweeps find nothing."""

    def paths(self, stores: Stores) -> list[str]:
        """Name no files: the pages are in OpenSearch."""
        return []

    def make(self, stores: Stores, *, now: datetime) -> PushReport:
        """Push the newest version of the index; return counts.

        Raises the errors of `push_index`.
        """
        return push_index(stores)

    def places_of(self, stores: Stores, pages: Pages) -> Iterator[PagePlace]:
        """Ask OpenSearch for the pages, if `push.url` is set.

        A server that does not answer may have them.
        """
        url = stores.config.push.url
        if url is None:
            return
        alias, until = alias_of(stores), _UNTIL
        try:
            with closing(Cluster(stores, wait_s=0)) as cluster:
                has_some = _has_some(cluster, alias, pages)
        except (SearchServerError, ConfigError) as error:
            log.warning("%s", error)
            has_some, until = True, f"OpenSearch cannot be asked for them; {_UNTIL}"
        if has_some:
            yield PagePlace(f"{url.rstrip('/')}/{alias}", until)


def _has_some(cluster: Cluster, alias: str, pages: Pages) -> bool:
    keys = iter(pages)
    while some := [{"_id": key.hex(), "_source": False} for key in islice(keys, ASKED_PAGES)]:
        found = cluster.ask(
            "POST", f"/{alias}/_mget?filter_path=docs.found", {"docs": some}, accept=(ABSENT,)
        )
        if found.status == ABSENT:
            return False
        answers = [one.get("found") for one in found.listed("docs")]
        if len(answers) != len(some) or not all(isinstance(one, bool) for one in answers):
            raise found.malformed("`docs` does not say of each page whether it is there")
        if any(answers):
            return True
    return False


PUSH_OUTPUT = PushOutput("push", ("index",))
