-- Rows with their documents. Both kinds of server.
SELECT hash, due_ms, fetched_ms, again_ms, shared_ms, tries, shares, waits_for, request, data
FROM krakepages
WHERE hash IN (:keys);
