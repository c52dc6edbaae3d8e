-- What create.sql does, in a SQLite file. Tables with large rows have a rowid: without, the nodes of a key's tree hold
-- whole rows, so the tree is deeper, and an insert costs three times the CPU.
CREATE TABLE IF NOT EXISTS krakepages (
    hash BLOB NOT NULL PRIMARY KEY,
    part INTEGER NOT NULL,
    due_ms INTEGER,
    fetched_ms INTEGER NOT NULL DEFAULT 0,
    again_ms INTEGER NOT NULL DEFAULT 0,
    shared_ms INTEGER NOT NULL DEFAULT 0,
    epoch INTEGER NOT NULL DEFAULT 0,
    tries INTEGER NOT NULL DEFAULT 0,
    shares INTEGER NOT NULL DEFAULT 0,
    request BLOB NOT NULL,
    waits_for BLOB,
    data BLOB
);
CREATE INDEX IF NOT EXISTS krakepages_due ON krakepages (part, due_ms) WHERE due_ms IS NOT NULL;
CREATE INDEX IF NOT EXISTS krakepages_fetched ON krakepages (fetched_ms);
CREATE INDEX IF NOT EXISTS krakepages_waits ON krakepages (waits_for) WHERE waits_for IS NOT NULL;
CREATE TABLE IF NOT EXISTS krakepagesversion (id INTEGER NOT NULL PRIMARY KEY, version INTEGER NOT NULL);
INSERT OR IGNORE INTO krakepagesversion VALUES (1, 1);
CREATE TABLE IF NOT EXISTS krakepagesrepeats (id BLOB NOT NULL PRIMARY KEY, made_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS krakepagesrepeats_made ON krakepagesrepeats (made_ms);
CREATE TABLE IF NOT EXISTS krakepagesepoch (id INTEGER NOT NULL PRIMARY KEY, epoch INTEGER NOT NULL);
INSERT OR IGNORE INTO krakepagesepoch
SELECT 1, COALESCE(MAX(epoch), 0) FROM krakepages WHERE NOT EXISTS (SELECT 1 FROM krakepagesepoch);
CREATE TABLE IF NOT EXISTS krakehosts (
    hash BLOB NOT NULL PRIMARY KEY,
    authority BLOB NOT NULL,
    seen_ms INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS krakehosts_seen ON krakehosts (seen_ms);
CREATE TABLE IF NOT EXISTS krakerates (
    domain BLOB NOT NULL PRIMARY KEY,
    delay_ms INTEGER,
    connections INTEGER,
    is_blocked INTEGER NOT NULL
);
