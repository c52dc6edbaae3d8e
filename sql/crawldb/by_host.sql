-- What may be listed, with `host_limit` as the reason where so many better ones of its host are there.
-- Requisites have no such limit. With `spread` the k-th URL of a host is worth k - 1 less. In: candidates, settings, failing (host).
select
  key, ranked.host, domain, is_requisite, due,
  case when settings.spread and is_requisite = 0 then worth - cast(of_host - 1 as decimal(8, 0)) else worth end as worth,
  case
    when is_requisite = 0 and of_host > case when failing.host is null then settings.max_per_host else settings.max_per_failing end
    then 'host_limit'
  end as reason
from (
  select candidates.*, row_number() over (partition by host, is_requisite order by worth desc, due, key) as of_host
  from candidates
  where reason is null
) as ranked
cross join settings
left join failing on failing.host = ranked.host
