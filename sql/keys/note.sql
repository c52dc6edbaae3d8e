-- What a key server remembers besides its keys: its place in the ring (JSON), in one row. `krake keys create` runs this
-- file (SQLite too), and so does Krake when an older key table has no note yet.
CREATE TABLE IF NOT EXISTS krakenote (
    id INTEGER NOT NULL PRIMARY KEY,
    note TEXT NOT NULL
);
