-- Redirects, with what plug-ins have them hand on.
-- In: hops_given, shares (key, segment, given).
select
  hops.key, hops.url, hops.moment, hops.depth, hops.redirects, hops.max_depth, hops.score, hops.counts, hops.source,
  hops.segment, shares.given
from hops_given as hops
join shares on shares.key = hops.source and shares.segment = hops.segment
