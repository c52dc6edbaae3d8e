-- The same, with `room` as the reason where the host's node has no room for it next to so many better ones.
-- `turn`: 0 for a domain's first share of the room, 1 for its second one, and so on: a later turn comes after all
-- earlier ones. Within a turn requisites come before pages.
-- In: of_domains (by_domain.sql or any_domain.sql), owners (host, node; without a row: node ''),
-- rooms (node, room, share of a domain).
select
  key, is_requisite, due, worth, turn,
  case when reason is not null then reason when of_node > room then 'room' end as reason
from (
  select
    shared.*,
    row_number() over (partition by node, reason order by turn, is_requisite desc, worth desc, due, key) as of_node
  from (
    select ranked.*, floor((of_share - 1) / share) as turn
    from (
      select
        of_domains.*, rooms.node, rooms.room, rooms.share,
        row_number() over (
          partition by rooms.node, of_domains.reason, of_domains.domain
          order by of_domains.is_requisite desc, of_domains.worth desc, of_domains.due, of_domains.key
        ) as of_share
      from of_domains
      left join owners on owners.host = of_domains.host
      join rooms on rooms.node = coalesce(owners.node, '')
    ) as ranked
  ) as shared
) as placed
