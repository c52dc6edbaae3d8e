-- Pairs of hosts that share more than half of the texts of the one that has fewer; those that share most first.
-- In: said (host, signature: of each page), limits (least: texts of a host; most_hosts: that have a text).
select host, texts, mirror, mirror_texts, shared
from (
  select
    one.host, one.texts, other.host as mirror, other.texts as mirror_texts, count(*) as shared,
    max(limits.least) as least
  from (
    select host, signature, count(*) over (partition by host) as texts, count(*) over (partition by signature) as hosts
    from (select distinct host, signature from said where signature is not null) as signatures
  ) as one
  join (
    select host, signature, count(*) over (partition by host) as texts
    from (select distinct host, signature from said where signature is not null) as signatures
  ) as other on other.signature = one.signature
  cross join limits
  where one.host < other.host and one.hosts <= limits.most_hosts
  group by one.host, one.texts, other.host, other.texts
) as counted
where 2 * shared > least(texts, mirror_texts) and least(texts, mirror_texts) >= least
order by shared desc, host, mirror
