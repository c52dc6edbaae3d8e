-- The leases of fetchers on other machines, on the first key server only. All times are by its clock, in milliseconds.
-- part: 0 to 255, by registrable domain. fetcher: the last owner. until_ms: the end of the lease; 0: nobody had one.
-- epoch: grows with each change of the owner, and of the owner's line. `:rows`: a row for each part.
CREATE TABLE IF NOT EXISTS krakeleases (
    part SMALLINT NOT NULL PRIMARY KEY,
    fetcher VARBINARY(64) NOT NULL,
    epoch BIGINT NOT NULL,
    until_ms BIGINT NOT NULL
) ENGINE = InnoDB;
-- seen_ms: when a scheduler last heard the fetcher. line: names the connection of a scheduler; no other one renews.
CREATE TABLE IF NOT EXISTS krakemembers (
    fetcher VARBINARY(64) NOT NULL PRIMARY KEY,
    seen_ms BIGINT NOT NULL,
    line VARBINARY(32) NOT NULL
) ENGINE = InnoDB;
INSERT IGNORE INTO krakeleases VALUES :rows;
