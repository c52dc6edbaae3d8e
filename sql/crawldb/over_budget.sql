-- New URLs that a budget refuses: the host's, the one for hosts of a domain, then the one for URLs of a domain.
-- URLs that come first (weighed.sql) count first, then URLs of more worth. A refused URL counts for no later budget.
-- In: tried, settings, limits (domain, max_pages, max_hosts: of domains that may be beyond them).
select key, reason
from (
  select
    key, begun,
    case
      when reason is not null then reason
      when comes_first = 0 and of_domain > max_pages then 'domain_pages'
    end as reason
  from (
    select
      judged.*,
      row_number() over (partition by domain, reason order by comes_first desc, worth desc, due, key) as of_domain
    from (
      select
        placed.*, limits.max_pages,
        case
          when placed.begun = 0 and placed.of_host > settings.pages_per_host then 'host_pages'
          when placed.comes_first = 0 and firsts.place > limits.max_hosts then 'domain_hosts'
        end as reason
      from (
        select
          key, host, domain, begun, comes_first, worth, due,
          row_number() over (partition by host order by comes_first desc, worth desc, due, key) as of_host
        from tried
        where begun = 1 or reason is null
      ) as placed
      cross join settings
      left join limits on limits.domain = placed.domain
      left join (
        select host, row_number() over (partition by domain order by comes_first desc, worth desc, due, key) as place
        from (
          select
            tried.*, row_number() over (partition by host order by comes_first desc, worth desc, due, key) as of_host
          from tried
          join limits on limits.domain = tried.domain
          where begun = 1 or reason is null
        ) as best
        where of_host = 1
      ) as firsts on firsts.host = placed.host
      where limits.domain is not null or settings.pages_per_host is not null
    ) as judged
  ) as ranked
) as found
where reason is not null and begun = 0
