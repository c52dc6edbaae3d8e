-- Ends of links that are one where one of several links stays: those of a domain.
-- In: ends.
select key, id, host, domain, domain as node_group
from ends
