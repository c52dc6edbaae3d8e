-- What submit.sql does for one URL, in a SQLite file. SQLite evaluates all assignments with the earlier values.
INSERT INTO krakepages (hash, part, due_ms, again_ms, shared_ms, shares, request)
VALUES (:hash, :part, :now, :now - :max_age_ms, :now, :shares, :request)
ON CONFLICT (hash) DO UPDATE SET
    shares = shares + excluded.shares,
    shared_ms = excluded.shared_ms,
    request = CASE
        WHEN (due_ms IS NULL OR due_ms < fetched_ms) AND waits_for IS NULL
            AND (again_ms <= :now OR fetched_ms < excluded.again_ms)
        THEN excluded.request
        ELSE request
    END,
    due_ms = CASE
        WHEN (due_ms IS NULL OR due_ms < fetched_ms) AND waits_for IS NULL
            AND (again_ms <= :now OR fetched_ms < excluded.again_ms)
        THEN :now
        ELSE due_ms
    END;
