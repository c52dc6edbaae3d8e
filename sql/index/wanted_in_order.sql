-- The pages of the index in order of keys.
-- In: wanted.
select key, own, language, anchors, boost, host, near, unavailable_after, segment, warc_file, warc_offset, warc_length
from wanted
order by key
