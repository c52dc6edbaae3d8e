-- What happened to URLs, each with its place in the order of time among those of its URL. Only the events of a URL that
-- has several are sorted.
-- `began`: of a URL that a capture speaks of first, when; captures of requisites do not count.
-- `is_newest`: whether no later capture has other links.
-- In: happened, repeated (key: of URLs with several events).
select *, 1 as place, 1 as places, case when kind = 'capture' and not is_requisite then moment end as began, has_links as is_newest
from happened
where not exists (select 1 from repeated where repeated.key = happened.key)
union all
select
  *,
  cast(row_number() over (partition by key order by moment, kind desc, segment, warc_file, warc_offset) as integer)
    as place,
  cast(count(*) over (partition by key) as integer) as places,
  case
    when min(case when kind = 'capture' and not is_requisite then moment end) over (partition by key)
      < coalesce(min(case when kind = 'seed' then moment end) over (partition by key), timestamp '9999-12-31 00:00:00')
    then min(case when kind = 'capture' and not is_requisite then moment end) over (partition by key)
  end as began,
  has_links and row_number()
    over (partition by key, has_links order by moment desc, segment desc, warc_file desc, warc_offset desc) = 1 as is_newest
from happened
where exists (select 1 from repeated where repeated.key = happened.key)
