-- Seeds as plug-ins see them: one that says no score has 1.
-- In: seeds_given.
select
  key, url, host, moment, seen, folder, due, depth, metadata, coalesce(score, cast(1 as decimal(18, 9))) as score,
  interval_s
from seeds_given
