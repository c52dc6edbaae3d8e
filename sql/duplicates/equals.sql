-- Pages with content that is known and that other pages have too: the same (kind 0), or nearly the same (kind 1).
-- In: crawldb (rows of the newest version), near (groups of near duplicates: key, group_key), options (among: none,
-- host or domain).
select
  key, url, kind, content, part, score, fetched_time, case when url like 'https:%' then 1 else 0 end as is_https
from (
  select found.*, count(*) over (partition by kind, content, part) as pages
  from (
    select
      known.key, known.url, kinds.kind,
      case when kinds.kind = 0 then known.signature else near.group_key end as content,
      case options.among when 'host' then known.host when 'domain' then known.domain else '' end as part,
      known.score, known.fetched_time
    from crawldb as known
    cross join options
    cross join (select cast(0 as integer) as kind union all select cast(1 as integer) as kind) as kinds
    left join near on near.key = known.key
    where known.status in ('fetched', 'not_modified', 'duplicate')
      and known.fetch_status in ('fetched', 'not_modified')
  ) as found
  where content is not null
) as counted
where pages > 1
