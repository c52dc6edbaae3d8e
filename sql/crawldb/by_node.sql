-- The same, with `room` as the reason where the host's node has no room for it next to so many better ones.
-- In: of_domains (by_domain.sql or any_domain.sql), owners (host, node; without a row: node ''), rooms (node, room).
select key, due, worth, case when reason is not null then reason when of_node > room then 'room' end as reason
from (
  select
    of_domains.*, rooms.room,
    row_number() over (
      partition by rooms.node, of_domains.reason order by of_domains.worth desc, of_domains.due, of_domains.key
    ) as of_node
  from of_domains
  left join owners on owners.host = of_domains.host
  join rooms on rooms.node = coalesce(owners.node, '')
) as ranked
