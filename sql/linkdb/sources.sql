-- Pages, as the version before and new segments know them. `new_segment`: the place of the segment whose links are the
-- page's from now on; null: those of before stay, if `is_kept`.
-- In: seen, old (the version before), segments (segment, name), taken_out (key, name: dropped pages).
select
  key, url, case when is_newer then new_time else old_time end as capture_time,
  case when is_newer then new_name else old_name end as capture_segment,
  case when is_later then new_seen else old_seen end as seen_time,
  case when is_later then new_is_gone = 1 else old_is_gone end as is_gone,
  case when is_newer then segment end as new_segment, is_old and not is_newer as is_kept
from (
  select
    coalesce(seen.key, old.key) as key, coalesce(seen.url, old.url) as url, seen.segment, segments.name as new_name,
    old.capture_segment as old_name, seen.capture_time as new_time, old.capture_time as old_time,
    seen.seen_time as new_seen, old.seen_time as old_seen, seen.is_gone as new_is_gone, old.is_gone as old_is_gone,
    old.key is not null as is_old,
    seen.capture_time is not null and (old.capture_time is null or seen.capture_time >= old.capture_time) as is_newer,
    seen.seen_time is not null and (old.seen_time is null or seen.seen_time >= old.seen_time) as is_later
  from seen
  full outer join (
    select *
    from old
    where seen_time is not null  -- DuckDB 2.0 finds rows `target is null` that are none (plain texts of Parquet)
      and not exists (
        select 1
        from taken_out
        where taken_out.key = old.key and coalesce(old.capture_segment, taken_out.name) = taken_out.name
      )
  ) as old on old.key = seen.key
  left join segments on segments.segment = seen.segment
) as both_sides
