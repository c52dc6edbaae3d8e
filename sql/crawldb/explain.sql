-- What was said of one URL.
-- In: judged (by_place.sql or any_place.sql), wanted (key).
select judged.reason
from judged
join wanted on wanted.key = judged.key
