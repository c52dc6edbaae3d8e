-- The sitemaps that robots.txt names, for each segment in which one was fetched that does.
-- In: links, segments (segment, name: folder/node).
select links.target as key, min(links.target_url) as url, segments.name
from links
join segments on segments.segment = links.segment
where links.element = 'robots' and links.followed
group by links.target, segments.name
order by key, name
