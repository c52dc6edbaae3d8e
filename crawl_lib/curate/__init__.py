"""Work on a crawl by hand: forget, retry, drop and compact pages, import archives, make one index.

How data flows: `forget` notes keys in the crawl directory, then deletes the keys from the key servers, so that pages
are crawled again. `retry` leaves a list of failed pages, past the key check; `retry_now` leaves a note that makes
waiting URLs due at once. `drop` leaves lists of keys in segments, whose pages readers then leave out; `compact` writes
these segments again without the pages. `import_archives` makes a segment of WARC or ARC files of any program, with the
crawl's own code for pages. `merge_indexes` merges the indexes of all segments for replay.

Each command writes its decision first and may be killed anywhere: the same command goes on.
"""

from crawl_lib.curate.compact import CompactReport, compact_segment
from crawl_lib.curate.drop import DropReport, drop_pages
from crawl_lib.curate.forget import ForgetReport, ForgottenPages, forget
from crawl_lib.curate.import_pages import FileReport, ImportReport
from crawl_lib.curate.importing import finish_folder, import_archives
from crawl_lib.curate.index import merge_indexes
from crawl_lib.curate.retry import Failures, RetryNowReport, RetryReport, retry, retry_now
