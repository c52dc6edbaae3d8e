-- What links and redirects in new segments say of their targets. `linked_at`: null where none may add a row, since its
-- seed's `max_depth` forbids it.
-- `given`: what plug-ins have them hand on, in all.
-- In: schedule (hints: whether a sitemap's priority counts), links, sources, hops (key, url, moment, depth, redirects,
-- max_depth, score, counts, given; null: it leads nowhere), named (key, url, moment: what a robots.txt names as a
-- sitemap).
select
  key, min(url) as url, min(moment) as linked_at, min(depth) as depth, min(redirects) as redirects,
  max(max_depth) as max_depth, max(score) as score, cast(sum(counts) as bigint) as inlinks,
  cast(sum(given) as decimal(18, 9)) as given
from (
  select
    links.target as key, links.target_url as url,
    case when sources.depth < sources.max_depth then sources.moment end as moment, sources.depth + 1 as depth,
    case when links.element in ('meta', 'sitemap') then sources.redirects + 1 else 0 end as redirects,
    sources.max_depth,
    case
      when schedule.hints and links.element = 'loc' and links.rel like '%priority=%'
        then cast(sources.score * cast(regexp_extract(links.rel, 'priority=([0-9.]+)', 1) as decimal(10, 9)) as decimal(18, 9))
      else sources.score
    end as score,
    case when sources.depth < sources.max_depth then sources.counts else 0 end as counts, sources.given
  from links
  join sources on sources.key = links.source and sources.segment = links.segment
  cross join schedule
  where links.followed and links.target <> links.source and coalesce(links.element, '') <> 'robots'
    and sources.given is not null
  union all
  select key, url, moment, depth, redirects, max_depth, score, counts, given
  from hops
  where given is not null
  union all
  select key, url, moment, 1, 0, 2147483647, cast(0 as decimal(18, 9)), 1, cast(0 as decimal(18, 9))
  from named
) as link
group by key
