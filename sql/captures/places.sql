-- Captures by key, the newest one of each key first.
-- In: old (rows of the version before), fresh (the same columns of the segments that the version lacks).
select key, folder, node, row_group, time, status, warc_file, warc_offset, warc_length
from (
  select key, folder, node, row_group, time, status, warc_file, warc_offset, warc_length from old
  union all
  select key, folder, node, row_group, time, status, warc_file, warc_offset, warc_length from fresh
) as known
order by key, folder desc, time desc, node desc, row_group desc, warc_offset desc
