-- The key table of one MySQL or MariaDB key server. `krake keys create` runs this file; by hand:
--     mysql -h HOST -u krake -p krake < sql/keys/create.sql
-- hash: lower-case hex SHA-1 of the canonical URL. keyinfo: 1 queued, 2 crawled, 3 gone.
-- ASCII and binary, so that rows are in the order of the key bytes and an interval is one range of the table.
CREATE TABLE kraakekeys (
    hash CHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    keyinfo TINYINT,
    PRIMARY KEY (hash)
) ENGINE = InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;
-- Its one row says which place among the key servers this one has. Krake writes it.
CREATE TABLE IF NOT EXISTS krakenote (
    id INTEGER NOT NULL PRIMARY KEY,
    note TEXT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;
-- When the next turn of an address, or of a host, is free (slots.sql says more).
CREATE TABLE IF NOT EXISTS kraakeslots (
    slot CHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    next_ms BIGINT NOT NULL,
    PRIMARY KEY (slot)
) ENGINE = InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;
