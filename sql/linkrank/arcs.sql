-- The links that may count: each once, and by option none within a host or a domain. `source_group` and `target_group`:
-- of which one link to a page, and one of a page, is to stay; a page's own key where none is left out for that.
-- In: links (key, url, target, target_url), domains (host, domain), options (within_host, within_domain, one_per_page,
-- one_per_domain: 1 or 0).
select distinct
  source, target, source_domain, target_domain,
  case when one_per_domain = 1 then source_domain when one_per_page = 1 then split_part(url, '?', 1) else url end as source_group,
  case when one_per_domain = 1 then target_domain when one_per_page = 1 then split_part(target_url, '?', 1) else target_url end
    as target_group
from (
  select
    named.source, named.target, named.url, named.target_url, source_side.domain as source_domain,
    target_side.domain as target_domain, options.one_per_domain, options.one_per_page
  from (
    select
      key as source, target, url, target_url,
      regexp_replace(split_part(url, '/', 3), ':[0-9]+$', '') as source_host,
      regexp_replace(split_part(target_url, '/', 3), ':[0-9]+$', '') as target_host
    from links
  ) as named
  join domains as source_side on source_side.host = named.source_host
  join domains as target_side on target_side.host = named.target_host
  cross join options
  where (options.within_host = 1 or named.source_host <> named.target_host)
    and (options.within_domain = 1 or source_side.domain <> target_side.domain)
) as known
