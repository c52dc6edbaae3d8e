-- What finish.sql does for one row, in a SQLite file.
UPDATE krakepages
SET data = :data,
    fetched_ms = :now,
    again_ms = :now + :again_ms,
    due_ms = CASE WHEN :stays_due THEN due_ms END,
    waits_for = NULL,
    tries = 0,
    epoch = max(epoch, :epoch)
WHERE hash = :hash AND ((:made_ms = 0 AND epoch <= :epoch) OR fetched_ms < :made_ms);
