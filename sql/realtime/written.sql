-- When a document of an epoch was written into a row. Both kinds of server.
SELECT fetched_ms FROM krakepages WHERE hash = :hash AND epoch = :epoch AND data IS NOT NULL;
