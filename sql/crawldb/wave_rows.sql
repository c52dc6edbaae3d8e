-- Rows after these events, in order of keys.
-- In: after.
select *
from after
order by key
