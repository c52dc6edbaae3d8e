-- What happened to URLs since the last version, but for links to them: captures and seeds.
-- `has_links`: whether its links are the page's from now on. `is_requisite`: of a capture, whether the URL was fetched as
-- a requisite of a page.
-- In: captures, seeds (key, url, host, moment, seen, folder, due, depth, metadata, score, interval_s), linked (key,
-- linked_at: when a new capture linked to it first).
select *, seen = 'content' and is_full as has_links
from captures
union all
select
  seeds.key, url, host, moment, 'seed' as kind, seen, 0 as cost,
  case when linked_at < moment and seen <> 'seed_overwrite' then linked_at else due end as due, cast(null as string) as redirect_url,
  cast(null as string) as etag, cast(null as string) as last_modified, cast(null as binary) as signature, depth,
  case when linked_at < moment and seen = 'seed_keep' then null else metadata end as metadata,
  cast(null as string) as mime, false as is_full, -1 as segment, cast(null as string) as segment_name,
  folder as warc_file, cast(0 as bigint) as warc_offset, cast(null as binary) as payload_digest,
  case when linked_at < moment and seen = 'seed_keep' then null else score end as score,
  case when linked_at < moment and seen = 'seed_keep' then null else interval_s end as interval_s,
  false as is_requisite, false as has_links
from seeds
left join linked on linked.key = seeds.key
