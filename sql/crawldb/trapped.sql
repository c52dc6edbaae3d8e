-- New URLs all of whose groups of one rule are full of URLs that come first, or are worth more.
-- In: weighed, grouped (key, rule, name of a group, most: how many it may have).
select key
from (
  select key, rule, max(case when place <= most then 1 else 0 end) as has_room
  from (
    select
      grouped.key, grouped.rule, grouped.most, weighed.comes_first,
      row_number() over (
        partition by grouped.name order by weighed.comes_first desc, weighed.worth desc, weighed.due, grouped.key
      ) as place
    from grouped
    join weighed on weighed.key = grouped.key
  ) as placed
  where comes_first = 0
  group by key, rule
) as judged
where has_room = 0
group by key
