-- Deletes those of these rows that wait for nothing. Both kinds of server.
DELETE FROM krakepages WHERE hash IN (:keys) AND due_ms IS NULL AND waits_for IS NULL;
