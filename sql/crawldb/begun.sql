-- When the first page of each new segment was fetched.
-- In: captures.
select segment_name as name, min(moment) as began
from captures
group by segment_name
order by name
