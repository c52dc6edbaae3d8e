-- The hosts and domains whose budgets refused most URLs.
-- In: tried, over_budget (key, reason).
select
  over_budget.reason, case when over_budget.reason = 'host_pages' then tried.host else tried.domain end as name,
  count(*) as urls
from over_budget
join tried on tried.key = over_budget.key
group by 1, 2
order by urls desc, reason, name
limit 20
