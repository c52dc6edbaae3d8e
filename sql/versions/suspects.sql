-- Captures of which perhaps nothing could be read: no byte of content, a reader that died of it, or a coding that is
-- not known and no title. A page that was cut, or whose coding is damaged behind its beginning, is not among them.
-- In: given_pages (rows of `pages` of new segments).
select key, segment
from given_pages
where parse_error is not null
  and (
    coalesce(length, 0) = 0
    or parse_error like '%no links were read%'
    or (title is null and parse_error like '%unknown coding%')
  )
