-- The followed links in new segments, with what their page hands on. `moment`: null where none may add a row, since its
-- seed's `max_depth` forbids it. `priority`: what a sitemap says, where that counts; else null.
-- In: schedule (hints: whether a sitemap's priority counts), links, sources.
select
  links.target as key, links.target_url as url, links.source, links.segment,
  case when sources.depth < sources.max_depth then sources.moment end as moment, sources.depth + 1 as depth,
  case when links.element in ('meta', 'sitemap') then sources.redirects + 1 else 0 end as redirects,
  sources.max_depth, sources.score,
  case
    when schedule.hints and links.element = 'loc' and links.rel like '%priority=%'
      then cast(regexp_extract(links.rel, 'priority=([0-9.]+)', 1) as decimal(10, 9))
  end as priority,
  case when sources.depth < sources.max_depth then sources.counts else 0 end as counts, sources.given
from links
join sources on sources.key = links.source and sources.segment = links.segment
cross join schedule
where links.followed and links.target <> links.source and coalesce(links.element, '') <> 'robots'
  and sources.given is not null
