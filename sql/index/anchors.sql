-- The texts of links to each page of the index, the most frequent ones, each once; a page's text counts once.
-- In: links (rows of the newest table of links), ends (key, target: where redirects lead), owners (key, owner).
select owner, anchor
from (
  select
    owner, anchor,
    row_number() over (partition by owner order by pages desc, anchor) as place
  from (
    select owners.owner, links.anchor, count(distinct links.key) as pages
    from links
    left join ends on ends.key = links.target
    join owners on owners.key = coalesce(ends.target, links.target)
    where links.target is not null and not links.is_gone and trim(links.anchor) <> ''
    group by owners.owner, links.anchor
  ) as counted
) as ranked
where place <= 100
order by owner, anchor
