-- The language of each page that may be indexed, for the most frequent one of each host.
-- In: candidates (pages that may be indexed).
select host, language
from candidates
