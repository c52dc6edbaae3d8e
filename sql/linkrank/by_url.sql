-- Ends of links, each for itself.
-- In: ends.
select key, id, host, domain, id as node_group
from ends
