-- The same as tried.sql, with the reason why a budget of its host or domain refuses a URL.
-- In: tried, over_budget (key, reason).
select tried.key, tried.host, tried.domain, tried.is_requisite, tried.due, tried.worth,
  coalesce(tried.reason, over_budget.reason) as reason
from tried
left join over_budget on over_budget.key = tried.key
