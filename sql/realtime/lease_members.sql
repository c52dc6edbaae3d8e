-- The fetchers heard in the last `:seen` milliseconds. Both kinds of server.
SELECT fetcher FROM krakemembers WHERE seen_ms > :now - :seen;
