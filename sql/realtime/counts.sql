-- How many rows are due, the time of the oldest, and this server's clock. Both kinds of server.
SELECT COUNT(*), COALESCE(MIN(due_ms), :now), :now
FROM krakepages
WHERE part IN (:parts) AND due_ms >= 0;
