-- What led on without a link, in order of time: redirects, and with `is_link` meta refreshes and what indexes of sitemaps
-- name. `redirects`: how many of these led to its page since the last link, as far as links, seeds and the version
-- before know; null where they did not know the page yet. `began`: see events.sql. `is_other`: whether a redirect led
-- elsewhere, or nowhere, at the visit before.
-- In: events, old, links, named (key, moment).
select
  moved.key, moved.redirect_url, moved.moment, moved.segment, moved.depth, moved.metadata, old.score, moved.is_link,
  case when reached.moment <= moved.moment then 0 else old.redirects end as redirects, moved.began,
  moved.redirect_url <> coalesce(case when moved.visit = 1 then old.redirect_url else moved.before_url end, '') as is_other
from (
  select key, redirect_url, moment, segment, depth, metadata, began, place, visit, before_url, false as is_link
  from (
    select
      events.*,
      row_number() over (partition by key order by place) as visit,
      lag(redirect_url) over (partition by key order by place) as before_url
    from events
    where kind = 'capture' and seen <> 'passing' and key in (select key from events where redirect_url is not null)
  ) as visited
  where redirect_url is not null and not is_requisite
  union all
  select
    events.key, links.target_url, events.moment, events.segment, events.depth, events.metadata, events.began,
    events.place, 0, cast(null as string), true
  from links
  join events on events.key = links.source and events.segment = links.segment
  where links.followed and links.element in ('meta', 'sitemap') and links.target <> links.source
) as moved
left join old on old.key = moved.key
left join (
  select key, min(moment) as moment
  from (
    select links.target as key, events.moment
    from links
    join events on events.key = links.source and events.segment = links.segment
    where links.followed and coalesce(links.element, '') not in ('meta', 'robots', 'sitemap')
      and links.target <> links.source
      and links.target in (
        select key
        from events
        where redirect_url is not null
          or key in (select source from links where followed and element in ('meta', 'sitemap'))
      )
    union all
    select key, moment
    from events
    where kind = 'seed'
    union all
    select key, moment
    from named
  ) as known
  group by key
) as reached on reached.key = moved.key
order by moved.moment, moved.key, moved.place, moved.redirect_url
