-- Ends of links that are one where one of several links stays: those that differ in their queries alone, by number.
-- In: ends.
select min(id) over (partition by split_part(url, '?', 1)) as node_group, id
from ends
order by id
