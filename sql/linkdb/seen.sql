-- What new segments say of pages: the capture whose links count (`capture_time`, `segment`; null: none), and whether
-- the page was gone, or led elsewhere, when it was seen last. Visits that ended otherwise, such as in a timeout, say
-- nothing. No link of a requisite is followed, so requisites have no rows.
-- In: pages, dropped (key, segment), unread (key, segment: captures of which nothing could be read).
select
  key, min(url) as url,
  max(case when has_links and capture_place = 1 then time end) as capture_time,
  max(case when has_links and capture_place = 1 then segment end) as segment,
  max(time) as seen_time, max(case when place = 1 then is_gone end) as is_gone
from (
  select
    visits.*,
    row_number() over (partition by key order by time desc, segment desc) as place,
    row_number() over (partition by key, has_links order by time desc, segment desc) as capture_place
  from (
    select
      pages.key, url, time, pages.segment, case when outcome in ('gone', 'redirect') then 1 else 0 end as is_gone,
      outcome = 'ok' and refers_to is null and unread.key is null as has_links
    from pages
    left join unread on unread.key = pages.key and unread.segment = pages.segment
    where retry_at is null and outcome in ('ok', 'not_modified', 'gone', 'redirect') and coalesce(hop, '') <> 'E'
      and not exists (select 1 from dropped where dropped.key = pages.key and dropped.segment = pages.segment)
  ) as visits
) as placed
group by key
