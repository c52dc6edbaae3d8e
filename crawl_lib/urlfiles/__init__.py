"""URLs in files: the line of a URL, the files `outlinks` and `scope`, and the record of sources taken in by a node.

How data flows: a segment, injected seeds and a list hold URLs for nodes in a file `outlinks` (`outlinks`), a line a
URL, with a part for each node. `OutlinkWriter` writes the parts, `read_outlinks` streams one part. The intake of a
node reads a part as a `Source` and notes the source in `TakenIn` (`takenin`).

`ScopeFile` (`scopefile`) has the hosts that a crawl keeps to.

The lines of a queue's data and meta files have the same fields. The codec of lines is here as well.
"""

from crawl_lib.urlfiles.outlinks import (
    BARE_META,
    BARE_META_TABS,
    CHUNK_BYTES,
    HANDED_ON,
    HANDED_ON_MARK,
    OUTLINKS_NAME,
    OutlinkWriter,
    Source,
    bytes_of,
    decode_line,
    decode_meta,
    due_of,
    encode_line,
    encode_meta,
    file_lines,
    is_listed,
    is_requisite,
    join_line,
    key_of_line,
    key_of_via,
    metadata_and_tries,
    next_lines,
    part_mapping,
    read_outlinks,
    some_lines,
    split_line,
    url_of_line,
    via_of_line,
)
from crawl_lib.urlfiles.scopefile import ScopeFile
from crawl_lib.urlfiles.takenin import TakenIn
