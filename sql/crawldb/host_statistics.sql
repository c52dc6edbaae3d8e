-- A row a host: its URLs by what the newest version says of them, and what their visits cost.
-- `failing`: the last visit failed in a way that passes; `visits`: rows of `pages`; `answers`: those with a response.
-- Means are rounded down: a quotient of integers below 2^53 is never rounded up to the next one.
-- In: crawldb, settings (now), pages (rows of `pages` of all segments that the version has).
select
  known.host, urls, unfetched, fetched, redirected, gone, duplicates, failing, due,
  coalesce(visits, 0) as visits, coalesce(answers, 0) as answers,
  cast(floor(answers_ms / nullif(answers, 0)) as bigint) as mean_ms,
  cast(floor(contents_bytes / nullif(contents, 0)) as bigint) as mean_bytes
from (
  select
    host,
    count(*) as urls,
    count(case when status = 'unfetched' then 1 end) as unfetched,
    count(case when status in ('fetched', 'not_modified') then 1 end) as fetched,
    count(case when status in ('redirected_temporary', 'redirected_permanent') then 1 end) as redirected,
    count(case when status = 'gone' then 1 end) as gone,
    count(case when status = 'duplicate' then 1 end) as duplicates,
    count(case when retries > 0 then 1 end) as failing,
    count(case when fetch_time <= settings.now then 1 end) as due
  from crawldb
  cross join settings
  group by host
) as known
left join (
  select
    host,
    count(*) as visits,
    count(status) as answers,
    cast(sum(case when status is not null then duration_ms end) as bigint) as answers_ms,
    count(length) as contents,
    cast(sum(length) as bigint) as contents_bytes
  from pages
  group by host
) as seen on seen.host = known.host
order by urls desc, known.host
