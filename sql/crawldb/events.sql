-- What happened to URLs since the last version, but for links to them: captures and seeds, each with its place in the
-- order of time among those of its URL.
-- `is_requisite`: of a capture, whether the URL was fetched as a requisite of a page.
-- `began`: of a URL that a capture speaks of first, when; captures of requisites do not count. `has_links`: whether its links are the page's from now on;
-- `is_newest`: whether no later capture has other ones.
-- In: captures, seeds (key, url, host, moment, seen, folder, due, depth, metadata, score, interval_s), linked (key,
-- linked_at: when a new capture linked to it first).
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
from (
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
) as happened
