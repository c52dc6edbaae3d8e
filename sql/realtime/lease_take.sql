-- Takes and renews the leases of a fetcher on `:parts`: its own, and free ones. MySQL assigns from left to right, so the
-- epoch is first. An epoch is at least the time of its lease: so it is above those of tables without leases. `:begins`:
-- 1 for a new line, which gets new epochs: what the line before still writes is older. Both kinds of server.
UPDATE krakeleases
SET epoch = CASE
        WHEN fetcher = :fetcher AND until_ms >= :now AND :begins = 0 THEN epoch
        WHEN epoch < :now THEN :now
        ELSE epoch + 1
    END,
    until_ms = :now + :lease,
    fetcher = :fetcher
WHERE part IN (:parts) AND (fetcher = :fetcher OR until_ms < :now)
    AND EXISTS (SELECT 1 FROM krakemembers m WHERE m.fetcher = :fetcher AND m.line = :line);
