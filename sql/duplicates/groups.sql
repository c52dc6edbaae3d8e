-- The groups of near duplicates, a row for each page of one, in order of keys.
-- In: vectors, captured (key, url), same (pages with the very same words), found (key, group_key, cosine, nearest: of the first of those).
select
  vectors.key, captured.url, coalesce(found.group_key, same.leader) as group_key,
  case when same.pages > 1 then cast(1 as double) else found.cosine end as cosine,
  case
    when same.pages = 1 then found.nearest
    when vectors.key = same.leader then same.second
    else same.leader
  end as nearest
from vectors
join captured on captured.key = vectors.key
join same on same.same = vectors.same
left join found on found.key = same.leader
where same.pages > 1 or found.key is not null
order by vectors.key
