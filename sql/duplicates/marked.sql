-- The rows with the status of a duplicate where an equal page is better, and with that of their visits where none is.
-- In: crawldb (rows of the newest version), equals (key, kind, content, part, and what is better).
select
  crawldb.key, url, host, domain,
  case
    when worse.key is not null then 'duplicate'
    when status = 'duplicate' then fetch_status
    else status
  end as status,
  fetch_time, modified_time, retries, interval_s, score, signature, fetched_time, etag, last_modified, redirect_url,
  redirects, capture_segment, capture_file, capture_offset, capture_time, capture_digest, depth, metadata, fetch_status,
  inlinks
from crawldb
left join (
  select key
  from (
    select
      key,
      row_number() over (
        partition by kind, content, part
        order by score desc, fetched_time desc nulls last, is_https desc, length_chars, key
      ) as place
    from equals
  ) as placed
  group by key
  having max(place) > 1
) as worse on worse.key = crawldb.key
order by crawldb.key
