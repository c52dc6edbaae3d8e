-- Counts a fetcher that died with these URLs. Both kinds of server.
UPDATE krakepages SET tries = tries + 1 WHERE hash IN (:keys) AND due_ms IS NOT NULL;
