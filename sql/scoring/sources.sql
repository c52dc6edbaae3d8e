-- Whose links are in new segments, with what plug-ins have each link hand on.
-- In: sources_given (sources.sql), shares (key, segment, given).
select
  sources.key, sources.segment, sources.moment, sources.depth, sources.max_depth, sources.redirects, sources.score,
  sources.counts, shares.given
from sources_given as sources
join shares on shares.key = sources.key and shares.segment = sources.segment
