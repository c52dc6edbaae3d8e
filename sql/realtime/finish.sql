-- Writes documents in one statement, which commits by itself: its time is the time of the events. `:rows`: a SELECT of
-- (hash, again_ms, epoch, made_ms, data, stays_due) for each row. made_ms: 0 for the owner of the row's part, whose epoch
-- counts; else the document was handed on, and was written into its own row at that time. A row that was deleted
-- meanwhile stays deleted.
UPDATE krakepages p
JOIN (:rows) v ON p.hash = v.hash
SET p.data = v.data,
    p.fetched_ms = :now,
    p.again_ms = :now + v.again_ms,
    p.due_ms = IF(v.stays_due, p.due_ms, NULL),
    p.waits_for = NULL,
    p.tries = 0,
    p.epoch = GREATEST(p.epoch, v.epoch)
WHERE (v.made_ms = 0 AND p.epoch <= v.epoch) OR p.fetched_ms < v.made_ms;
