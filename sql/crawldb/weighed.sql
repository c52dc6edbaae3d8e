-- What speaks against each URL by itself (`reason`; null: nothing), what it is worth, and from when on it may be listed.
-- A list holds a URL until its lease is over, or the table has seen another visit than it had then.
-- In: crawldb (rows of the newest version), settings (one row), refused (key), statuses (status),
-- listed (key, fetched_time as it was when the list was made, until: the end of its lease),
-- worths (key, sort_value: of plug-ins), joint (host, domain: where these are not as the table has them).
-- `begun`: 1 for a URL that was visited, or that a list holds; `comes_first`: 1 for these and for seeds.
-- `is_requisite`: 1 for a requisite: depth and score do not keep requisites out, and limits of pages do not count them.
select
  crawldb.key, crawldb.url, crawldb.host, case when crawldb.status = 'requisite' then 1 else 0 end as is_requisite, coalesce(joint.domain, crawldb.domain) as domain,
  case when crawldb.fetched_time is not null or leased.until is not null then 1 else 0 end as begun,
  case when crawldb.fetched_time is not null or leased.until is not null
    or (crawldb.depth = 0 and crawldb.redirects = 0) then 1 else 0 end as comes_first,
  case when crawldb.fetch_time <= settings.now and leased.until is not null then leased.until
    else crawldb.fetch_time end as due,
  case settings.rank_by
    when 'breadth' then cast(-crawldb.depth as decimal(18, 9))
    when 'score' then coalesce(worths.sort_value, crawldb.score)
    else cast(0 as decimal(18, 9)) end as worth,
  case
    when settings.only_requisites and crawldb.status <> 'requisite' then 'page'
    when crawldb.status = 'requisite' and crawldb.fetch_time >= timestamp '9999-12-31 00:00:00' then 'not_needed'
    when crawldb.fetch_time > settings.now then 'not_due'
    when refused.key is not null or (crawldb.status <> 'requisite' and crawldb.depth > settings.max_depth) then 'filter'
    when leased.until is not null then 'leased'
    when crawldb.status <> 'requisite' and crawldb.score < settings.min_score then 'score'
    when settings.has_statuses and statuses.status is null then 'status'
  end as reason
from crawldb
cross join settings
left join joint on joint.host = crawldb.host
left join refused on refused.key = crawldb.key
left join (select key, fetched_time, max(until) as until from listed group by key, fetched_time) as leased
  on leased.key = crawldb.key and leased.fetched_time is not distinct from crawldb.fetched_time
left join worths on worths.key = crawldb.key
left join statuses on statuses.status = crawldb.status
