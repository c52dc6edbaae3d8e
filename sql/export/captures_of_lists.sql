-- The captures of pages that lists ask for again and again: those of pages whose newest final outcome is not that they
-- are gone, or have moved. A visit that found a page as it was counts as the full capture that it refers to, which was
-- seen then; one whose full capture is not among the inputs does not count.
-- In: visits (rows of `pages` with segment, the place of their segment in `inputs`), segments (segment, name).
select visits.*, greatest(visits.time, coalesce(later.seen, visits.time)) as seen
from visits
left join (
  select visits.key, segments.segment, max(visits.time) as seen
  from visits
  join segments on segments.name = visits.refers_to.segment
  group by visits.key, segments.segment
) as later on later.key = visits.key and later.segment = visits.segment
left join (
  select
    key, outcome,
    row_number() over (partition by key order by time desc, segment desc, warc_file desc, warc_offset desc) as place
  from visits
  where retry_at is null
) as newest on newest.key = visits.key and newest.place = 1
where visits.refers_to is null
  and coalesce(newest.outcome, '') not in ('gone', 'redirect')
