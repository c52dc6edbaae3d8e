-- As create_leases.sql, in SQLite.
CREATE TABLE IF NOT EXISTS krakeleases (
    part INTEGER NOT NULL PRIMARY KEY,
    fetcher TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    until_ms INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS krakemembers (
    fetcher TEXT NOT NULL PRIMARY KEY,
    seen_ms INTEGER NOT NULL,
    line TEXT NOT NULL
);
INSERT OR IGNORE INTO krakeleases VALUES :rows;
