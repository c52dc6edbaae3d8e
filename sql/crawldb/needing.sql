-- The captures in new segments, for the requisites that they name: `steps` from a page, 0 for a page itself; `before`:
-- requisites that were visited before that moment are to be visited again, since they are older than the interval that
-- the page had at its visit.
-- In: events, old, schedule.
select
  events.key, events.segment, min(events.moment) as moment,
  min(case when events.is_requisite then events.depth else 0 end) as steps,
  min(events.moment - coalesce(old.interval_s, schedule.interval_s) * interval '1' second) as before
from events
cross join schedule
left join old on old.key = events.key
where events.kind = 'capture'
group by events.key, events.segment
