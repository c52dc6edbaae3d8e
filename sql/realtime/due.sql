-- Times and keys of due rows, from a mark on: the index has both. `+ 0` keeps MariaDB from two ranges for each part,
-- which took twice the time. Both kinds of server.
SELECT due_ms, hash
FROM krakepages
WHERE part IN (:parts) AND due_ms >= :after_ms AND due_ms <= :now
    AND (due_ms + 0 > :after_ms OR hash > :after_key)
ORDER BY due_ms, hash
LIMIT :limit;
