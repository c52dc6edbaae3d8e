-- What finish.sql does for one row, in a SQLite file.
UPDATE krakepages
SET data = :data,
    fetched_ms = :now,
    again_ms = :now + :again_ms,
    due_ms = NULL,
    waits_for = NULL,
    tries = 0,
    epoch = :epoch
WHERE hash = :hash AND epoch <= :epoch;
