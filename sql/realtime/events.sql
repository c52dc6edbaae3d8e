-- Keys by the times of their documents, from a mark on. Both kinds of server; the index has all columns.
SELECT fetched_ms, hash
FROM krakepages
WHERE fetched_ms >= :after_ms AND fetched_ms > 0 AND (fetched_ms > :after_ms OR hash > :after_key)
ORDER BY fetched_ms, hash
LIMIT :limit;
