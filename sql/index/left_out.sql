-- Pages that are still there and not in the index, and why; `owner`: the page that stands for them.
-- In: captured (captures that count), judged (pages with their texts), owners (key, target, owner).
select
  captured.key,
  case
    when judged.reason is not null then judged.reason
    when owners.target <> captured.key then 'canonical'
    when owners.owner <> captured.key then 'same_text'
    else 'no_text'
  end as reason,
  owners.owner
from captured
left join judged on judged.key = captured.key
left join owners on owners.key = captured.key
where owners.owner is null or owners.owner <> captured.key
order by captured.key
