-- What may be listed, with `host_limit` as the reason where so many better ones of its host are there.
-- With `spread` the k-th URL of a host is worth k - 1 less. In: candidates, settings, failing (host).
select
  key, ranked.host, domain, due,
  case when settings.spread then worth - cast(of_host - 1 as decimal(8, 0)) else worth end as worth,
  case
    when of_host > case when failing.host is null then settings.max_per_host else settings.max_per_failing end
    then 'host_limit'
  end as reason
from (
  select candidates.*, row_number() over (partition by host order by worth desc, due, key) as of_host
  from candidates
  where reason is null
) as ranked
cross join settings
left join failing on failing.host = ranked.host
