-- What was fetched: the rows of `pages` of new segments, but for dropped pages. The signature is that of the text where
-- there is one, else the content's digest.
-- In: pages, texts (key, time, signature, segment), dropped (key, segment), segments (segment, name: folder/node),
-- outcomes (outcome, seen), unread (key, segment: captures of which nothing could be read).
select
  pages.key, pages.url, pages.host, pages.time as moment, 'capture' as kind,
  case
    when pages.retry_at is not null then 'passing'
    when pages.refers_to is not null then 'not_modified'
    when outcomes.seen = 'content' and unread.key is not null then 'parse_failed'
    when outcomes.seen = 'redirect' and pages.status in (301, 308) then 'redirect_permanent'
    when outcomes.seen = 'redirect' then 'redirect_temporary'
    else outcomes.seen
  end as seen,
  case when pages.outcome = 'host_gave_up' and pages.attempts = 0 then 0 else 1 end as cost,
  pages.retry_at as due, pages.redirect_url, pages.etag, pages.last_modified, coalesce(texts.signature, pages.digest) as signature, pages.depth,
  pages.metadata, lower(pages.mime_detected) as mime, pages.refers_to is null as is_full, pages.segment,
  segments.name as segment_name, pages.warc_file, pages.warc_offset,
  coalesce(pages.payload_digest, pages.digest) as payload_digest,
  cast(null as decimal(18, 9)) as score, cast(null as bigint) as interval_s, coalesce(pages.hop, '') = 'E' as is_requisite
from pages
join segments on segments.segment = pages.segment
left join outcomes on outcomes.outcome = pages.outcome
left join unread on unread.key = pages.key and unread.segment = pages.segment
left join texts on texts.segment = pages.segment and texts.key = pages.key and texts.time = pages.time
where not exists (select 1 from dropped where dropped.key = pages.key and dropped.segment = pages.segment)
