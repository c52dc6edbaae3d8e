-- The captures of a part of Common Crawl's index, in its order.
-- In: chosen (the columns of a capture).
select
  url_surtkey, url, host, fetch_time, fetch_status, fetch_redirect, content_digest, content_mime_type,
  content_mime_detected, content_charset, content_languages, content_truncated, warc_filename, warc_record_offset,
  warc_record_length, warc_segment, wet_filename, wet_record_offset, wet_record_length
from chosen
order by url_surtkey, url, fetch_time, warc_filename, warc_record_offset
