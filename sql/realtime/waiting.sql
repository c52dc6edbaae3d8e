-- Rows of parts that wait for a redirect's target, by the target, from a mark on. Both kinds of server.
SELECT hash, due_ms, fetched_ms, again_ms, shared_ms, tries, shares, waits_for, request, NULL
FROM krakepages
WHERE part IN (:parts) AND waits_for >= :target AND (waits_for > :target OR hash > :after_key)
ORDER BY waits_for, hash
LIMIT :limit;
