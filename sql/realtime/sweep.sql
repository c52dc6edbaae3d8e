-- Deletes those of these rows that nobody has shared and nothing has fetched for so long. Both kinds of server.
DELETE FROM krakepages
WHERE hash IN (:keys) AND due_ms IS NULL AND waits_for IS NULL
    AND shared_ms < :now - :keep_ms AND fetched_ms < :now - :keep_ms;
