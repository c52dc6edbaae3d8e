-- Redirects that were seen, in order of time. `is_other`: whether it led elsewhere, or nowhere, at the visit before.
-- In: events, old.
select
  hop.key, hop.redirect_url, hop.moment, hop.segment, hop.depth, hop.metadata, old.score,
  coalesce(old.redirects, 0) as redirects,
  hop.redirect_url <> coalesce(case when hop.visit = 1 then old.redirect_url else hop.before_url end, '') as is_other
from (
  select
    events.*,
    row_number() over (partition by key order by place) as visit,
    lag(redirect_url) over (partition by key order by place) as before_url
  from events
  where kind = 'capture' and seen <> 'passing' and key in (select key from events where redirect_url is not null)
) as hop
left join old on old.key = hop.key
where hop.redirect_url is not null
order by hop.moment, hop.key, hop.place
