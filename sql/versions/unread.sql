-- Captures of which nothing could be read: no link either.
-- In: suspects (suspects.sql), given_links (rows of `links` of new segments).
select key, segment
from suspects
where not exists (
  select 1
  from given_links
  where given_links.source = suspects.key and given_links.segment = suspects.segment
)
