-- Lets a row wait for the target of its redirect. The caller submits the target afterwards; at its next start the
-- service does so for each row that waits. Both kinds of server.
UPDATE krakepages
SET waits_for = :target, request = :request, due_ms = NULL, epoch = :epoch
WHERE hash = :hash AND epoch <= :epoch;
