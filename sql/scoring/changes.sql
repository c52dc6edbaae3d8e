-- Whether captures with content have other content than the one known before them, and whether a redirect leads
-- elsewhere than the visit before.
-- In: events, old, hops_given.
select key, segment, max(is_other) = 1 as is_changed
from (
  select
    events.key, events.segment,
    case
      when events.signature is distinct from coalesce(
        lag(events.signature) over (partition by events.key order by events.place), old.signature) then 1
      else 0
    end as is_other
  from events
  left join old on old.key = events.key
  where events.has_links
  union all
  select source, segment, counts
  from hops_given
) as seen
group by key, segment
