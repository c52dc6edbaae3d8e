-- The same as tried.sql, with the reason why a budget of its host or domain refuses a URL.
-- In: tried, over_budget (key, reason).
select tried.key, tried.host, tried.domain, tried.due, tried.worth, coalesce(tried.reason, over_budget.reason) as reason
from tried
left join over_budget on over_budget.key = tried.key
