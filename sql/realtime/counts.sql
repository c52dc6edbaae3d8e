-- How many rows are due, the time of the oldest, and this server's clock. A row with a document since it was due waits
-- for a picture only. Both kinds of server.
SELECT COUNT(*), COALESCE(MIN(due_ms), :now), :now
FROM krakepages
WHERE part IN (:parts) AND due_ms >= 0 AND due_ms >= fetched_ms;
