-- The rows of the new version: a row for each page, then one for each of its links, in order of their targets.
-- Links count that are followed, or that only the crawl's scope or depth kept from being followed.
-- In: sources, links (of new segments), old (the version before).
select *
from (
  select
    key, url, cast(null as binary) as target, cast(null as string) as target_url, cast(null as string) as anchor,
    is_gone, capture_time, capture_segment, seen_time
  from sources
  union all
  select
    key, url, target, target_url, anchor, is_gone, cast(null as timestamp) as capture_time,
    cast(null as string) as capture_segment, cast(null as timestamp) as seen_time
  from (
    select distinct
      sources.key, sources.url, links.target, links.target_url, coalesce(links.anchor, '') as anchor, sources.is_gone
    from links
    join sources on sources.key = links.source and sources.new_segment = links.segment
    where links.target is not null and links.target <> links.source
      and (links.followed or links.rule in ('scope', 'depth'))
    union all
    select sources.key, sources.url, old.target, old.target_url, old.anchor, sources.is_gone
    from old
    join sources on sources.key = old.key and sources.is_kept
    where old.target is not null
  ) as of_pages
) as all_rows
order by key, target nulls first, anchor
