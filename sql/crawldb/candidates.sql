-- What speaks against each URL by itself (`reason`; null: nothing), what it is worth, and from when on it may be listed.
-- A list holds a URL until its lease is over, or the table has seen another visit than it had then.
-- In: crawldb (rows of the newest version), settings (one row), refused (key), statuses (status),
-- listed (key, fetched_time as it was when the list was made, until: the end of its lease),
-- worths (key, sort_value: of plug-ins).
select
  crawldb.key, crawldb.host, crawldb.domain,
  case when crawldb.fetch_time <= settings.now and leased.until is not null then leased.until
    else crawldb.fetch_time end as due,
  case settings.rank_by
    when 'breadth' then cast(-crawldb.depth as decimal(18, 9))
    when 'score' then coalesce(worths.sort_value, crawldb.score)
    else cast(0 as decimal(18, 9)) end as worth,
  case
    when crawldb.fetch_time > settings.now then 'not_due'
    when crawldb.depth > settings.max_depth or refused.key is not null then 'filter'
    when leased.until is not null then 'leased'
    when crawldb.score < settings.min_score then 'score'
    when settings.has_statuses and statuses.status is null then 'status'
  end as reason
from crawldb
cross join settings
left join refused on refused.key = crawldb.key
left join (select key, fetched_time, max(until) as until from listed group by key, fetched_time) as leased
  on leased.key = crawldb.key and leased.fetched_time is not distinct from crawldb.fetched_time
left join worths on worths.key = crawldb.key
left join statuses on statuses.status = crawldb.status
