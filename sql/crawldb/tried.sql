-- The same as weighed.sql, with the reason why the rules for traps refuse a URL.
-- In: weighed, trapped (key).
select
  weighed.key, weighed.host, weighed.domain, weighed.is_requisite, weighed.begun, weighed.comes_first, weighed.due, weighed.worth,
  coalesce(weighed.reason, case when trapped.key is not null then 'trap' end) as reason
from weighed
left join trapped on trapped.key = weighed.key
