-- Each URL with the reason why the list does not take it, else `listed`: the best of a host, of these the best of a
-- domain, of these the best of a node, as many as it has room for, and of these the best of all.
-- A later turn (by_node.sql) comes after all earlier ones. Equally good ones: the longest due, then the smallest key. What a limit turns away counts for none that follows.
-- Pages and requisites have a limit each.
-- In: candidates, of_nodes (by_node.sql), settings.
select key, due, reason
from candidates
where reason is not null
union all
select
  key, due,
  case
    when reason is not null then reason
    when is_requisite = 0 and place > settings.top_n then 'top_n'
    when is_requisite = 1 and place > settings.requisites_top_n then 'requisites_top_n'
    else 'listed'
  end
from (
  select of_nodes.*, row_number() over (partition by reason, is_requisite order by turn, worth desc, due, key) as place
  from of_nodes
) as ranked
cross join settings
