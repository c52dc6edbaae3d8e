-- Notes that a fetcher was heard by its line. Both kinds of server.
UPDATE krakemembers SET seen_ms = :now WHERE fetcher = :fetcher AND line = :line;
