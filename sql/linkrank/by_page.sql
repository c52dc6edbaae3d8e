-- Ends of links that are one where one of several links stays: those that differ in their queries alone.
-- In: ends.
select key, id, host, domain, min(id) over (partition by split_part(url, '?', 1)) as node_group
from ends
