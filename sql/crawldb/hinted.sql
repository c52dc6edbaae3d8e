-- What sitemaps say of pages since their last visit: `is_newer`, 1 if one has changed since; `every_s`, how often it does.
-- What a sitemap says of the time after it was fetched counts as that time.
-- In: links, sources, before, turn, after.
select
  said.key, min(case when said.moment > visited.fetched_time then said.every_s end) as every_s,
  max(case when said.changed is not null and least(said.changed, said.moment) > visited.fetched_time then 1 else 0 end) as is_newer
from (
  select
    links.target as key, sources.moment,
    timestamp '1970-01-01 00:00:00'
      + cast(nullif(regexp_extract(links.rel, 'lastmod=([0-9]+)', 1), '') as bigint) * interval '1' second as changed,
    cast(nullif(regexp_extract(links.rel, 'every_s=([0-9]+)', 1), '') as bigint) as every_s
  from links
  join sources on sources.key = links.source and sources.segment = links.segment
  where links.element = 'loc' and links.followed and links.rel <> ''
) as said
join (
  select key, fetched_time
  from before
  where not exists (select 1 from turn where turn.key = before.key)
  union all
  select key, fetched_time
  from after
) as visited on visited.key = said.key
group by said.key
