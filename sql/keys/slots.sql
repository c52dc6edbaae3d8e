-- The table of turns that nodes share, on each key server (SQLite too). `krake fsck --repair` runs this file if the
-- table is missing.
-- slot: lower-case hex SHA-1 of `ip <address>` or `host <name>`. next_ms: when its next turn is free, in milliseconds
-- since 1970 by this server's clock.
CREATE TABLE IF NOT EXISTS kraakeslots (
    slot CHAR(40) NOT NULL PRIMARY KEY,
    next_ms BIGINT NOT NULL
);
