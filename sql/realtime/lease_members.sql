-- The fetchers heard in the last `:seen` milliseconds, with their lines. Both kinds of server.
SELECT fetcher, line FROM krakemembers WHERE seen_ms > :now - :seen;
