-- Rows that are due, without documents, from a mark on. Both kinds of server.
SELECT hash, due_ms, fetched_ms, again_ms, shared_ms, tries, shares, waits_for, request, NULL
FROM krakepages
WHERE part IN (:parts) AND due_ms >= :after_ms AND due_ms <= :now
    AND (due_ms > :after_ms OR hash > :after_key)
ORDER BY due_ms, hash
LIMIT :limit;
