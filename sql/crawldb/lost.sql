-- How many links to a URL are on captures that have newer ones now.
-- In: lost_links (lost_links.sql).
select key, count(*) as inlinks
from lost_links
group by key
