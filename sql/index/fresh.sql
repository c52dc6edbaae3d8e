-- Captures of pages that are to be added to the index, segment by segment.
-- In: listed (rows of the table of pages of the next version), indexed (those of the version before), described
-- (captures with what their pages say), wanted (key, language).
select described.*, wanted.language as final_language
from described
join wanted on wanted.key = described.key
join listed on listed.key = described.key
left join indexed on indexed.key = listed.key and indexed.digest = listed.digest
where indexed.key is null
order by described.segment, described.key
