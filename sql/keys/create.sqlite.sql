-- The key table of one embedded key "server", a SQLite file. `krake keys create` runs this file; by hand:
--     sqlite3 data/keys/0.sqlite < sql/keys/create.sqlite.sql
-- hash: lower-case hex SHA-1 of the canonical URL. keyinfo: 1 queued, 2 crawled, 3 gone.
-- WITHOUT ROWID keeps the rows themselves in key order, as InnoDB does. SQLite compares text byte by byte.
CREATE TABLE kraakekeys (
    hash CHAR(40) NOT NULL PRIMARY KEY,
    keyinfo TINYINT
) WITHOUT ROWID;
-- When the next turn of an address, or of a host, is free (slots.sql says more).
CREATE TABLE IF NOT EXISTS kraakeslots (
    slot CHAR(40) NOT NULL PRIMARY KEY,
    next_ms BIGINT NOT NULL
);
