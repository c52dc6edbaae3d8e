-- Rows that wait for one of these targets. Both kinds of server.
SELECT hash, due_ms, fetched_ms, again_ms, shared_ms, tries, shares, waits_for, request, NULL
FROM krakepages
WHERE waits_for IN (:keys);
