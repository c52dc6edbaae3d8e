"""Push: the pages of the index go to OpenSearch, where one machine cannot answer all searches.

How data flows: `push_index` (`push`) compares the newest version of the index with the version in OpenSearch
(`changes`). Changed pages become documents (`documents`). Documents travel in batches (`bulk`) over HTTP (`cluster`).
Each index of OpenSearch has a note about the pages there, and an alias leads clients to the newest index (`target`).
`output` names OpenSearch as a place of dropped pages.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.push.output import PUSH_OUTPUT
    from crawl_lib.push.push import push_index
else:
    # The index needs Tantivy, and most commands need neither.
    __getattr__ = loads_later(__name__, {"output": ("PUSH_OUTPUT",), "push": ("push_index",)})
