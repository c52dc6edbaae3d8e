-- Events with the interval until the next visit of their URLs, within the bounds of their kind.
-- In: event_states, kinds (host, mime, metadata, sort), limits (sort, status, fixed_s, least_s, most_s).
select
  believed.*,
  case
    when is_seeded then coalesce(seed_interval_s, interval_s)
    when visit in ('kept', 'retry', 'at once') then interval_s
    when limits.fixed_s is not null then limits.fixed_s
    else least(
      greatest(scheduled_s, coalesce(limits.least_s, case when visit in ('sooner', 'later') then min_s else 0 end)),
      coalesce(limits.most_s, case when visit in ('sooner', 'later') then max_s else 1099511627776 end))
  end as new_interval_s
from event_states as believed
left join kinds
  on kinds.host = believed.host and kinds.mime = coalesce(believed.mime, '')
  and kinds.metadata = coalesce(believed.new_metadata, '')
left join limits on limits.sort = kinds.sort and limits.status = believed.status
