-- The captures of the segments that the version before lacks.
-- In: read.
select key, folder, node, row_group, time, status, warc_file, warc_offset, warc_length from read
