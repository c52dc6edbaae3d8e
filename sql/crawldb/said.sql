-- What each link in new segments says of its target. `moment`: null where none may add a row, since its seed's
-- `max_depth` forbids it.
-- In: schedule (hints: whether a sitemap's priority counts), links, sources.
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
