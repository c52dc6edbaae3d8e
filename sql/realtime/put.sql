-- Writes whole rows in place of rows with these keys, while no service works. Both kinds of server.
REPLACE INTO krakepages
    (hash, part, due_ms, fetched_ms, again_ms, shared_ms, tries, shares, waits_for, request, data)
VALUES :rows;
