-- Writes what a fetcher knows of hosts. Both kinds of server.
REPLACE INTO krakehosts (hash, authority, seen_ms, data) VALUES :rows;
