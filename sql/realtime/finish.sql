-- Writes documents in one statement, which commits by itself: its time is the time of the events. `:rows`: a SELECT of
-- (hash, again_ms, epoch, data) for each row. A row that was deleted meanwhile stays deleted.
UPDATE krakepages p
JOIN (:rows) v ON p.hash = v.hash
SET p.data = v.data,
    p.fetched_ms = :now,
    p.again_ms = :now + v.again_ms,
    p.due_ms = NULL,
    p.waits_for = NULL,
    p.tries = 0,
    p.epoch = v.epoch
WHERE p.epoch <= v.epoch;
