-- The table of the real-time service, on each key server. `krake serve realtime` runs this file where there is none.
-- hash: SHA-1 of the canonical URL. part: 0 to 255, by registrable domain. due_ms: when the URL may be fetched; NULL:
-- there is nothing to do. fetched_ms: when the document was written, by this server's clock; 0: never. again_ms: from
-- then on a submission makes the row due again. shared_ms: the last submission. epoch: of the writer; a lower one may
-- not write. tries: fetchers that died with the URL. shares: submissions. request: URL, policy and hop, as JSON.
-- waits_for: hash of the redirect's target. data: the document, JSON.
CREATE TABLE IF NOT EXISTS krakepages (
    hash BINARY(20) NOT NULL,
    part SMALLINT NOT NULL,
    due_ms BIGINT,
    fetched_ms BIGINT NOT NULL DEFAULT 0,
    again_ms BIGINT NOT NULL DEFAULT 0,
    shared_ms BIGINT NOT NULL DEFAULT 0,
    epoch BIGINT NOT NULL DEFAULT 0,
    tries INTEGER NOT NULL DEFAULT 0,
    shares BIGINT NOT NULL DEFAULT 0,
    request MEDIUMBLOB NOT NULL,
    waits_for BINARY(20),
    data MEDIUMBLOB,
    PRIMARY KEY (hash),
    KEY krakepages_due (part, due_ms),
    KEY krakepages_fetched (fetched_ms),
    KEY krakepages_waits (waits_for)
) ENGINE = InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;
-- Its one row has the version of the table.
CREATE TABLE IF NOT EXISTS krakepagesversion (
    id INTEGER NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL
) ENGINE = InnoDB;
INSERT IGNORE INTO krakepagesversion VALUES (1, 1);
-- Submissions with an Idempotency-Key: id is a SHA-1 of token, key and URL; made_ms: when the submission was counted.
CREATE TABLE IF NOT EXISTS krakepagesrepeats (
    id BINARY(20) NOT NULL,
    made_ms BIGINT NOT NULL,
    PRIMARY KEY (id),
    KEY krakepagesrepeats_made (made_ms)
) ENGINE = InnoDB;
-- Its one row has the epoch of the newest writer. A table without such a row begins with the highest epoch of its pages.
CREATE TABLE IF NOT EXISTS krakepagesepoch (
    id INTEGER NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL
) ENGINE = InnoDB;
INSERT IGNORE INTO krakepagesepoch
SELECT 1, COALESCE(MAX(epoch), 0) FROM krakepages WHERE NOT EXISTS (SELECT 1 FROM krakepagesepoch);
-- What a fetcher on another machine must know of a host before it asks the host for the first time. hash: SHA-1 of the
-- authority. seen_ms: when a fetcher told of the host. data: delay, back-off and robots.txt, JSON (fetch.HostState).
CREATE TABLE IF NOT EXISTS krakehosts (
    hash BINARY(20) NOT NULL,
    authority VARBINARY(1024) NOT NULL,
    seen_ms BIGINT NOT NULL,
    data MEDIUMBLOB NOT NULL,
    PRIMARY KEY (hash),
    KEY krakehosts_seen (seen_ms)
) ENGINE = InnoDB;
-- Rates that operators have set, on the first key server. NULL: as the config says.
CREATE TABLE IF NOT EXISTS krakerates (
    domain VARBINARY(255) NOT NULL PRIMARY KEY,
    delay_ms BIGINT,
    connections INTEGER,
    is_blocked SMALLINT NOT NULL
) ENGINE = InnoDB;
