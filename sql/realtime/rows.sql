-- All rows with their documents, by key, after a key. Both kinds of server.
SELECT hash, due_ms, fetched_ms, again_ms, shared_ms, tries, shares, waits_for, request, data
FROM krakepages
WHERE hash > :after_key
ORDER BY hash
LIMIT :limit;
