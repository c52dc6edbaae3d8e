-- Submits URLs. `:rows`: (hash, part, due_ms, again_ms, shared_ms, shares, request), where again_ms carries the time
-- before which a document is too old for this submission. MySQL assigns from left to right, so due_ms comes last: the
-- assignment of `request` asks for the earlier due_ms. A row with a document since it was due waits for a picture only. `:now`: this server's clock in milliseconds.
INSERT INTO krakepages (hash, part, due_ms, again_ms, shared_ms, shares, request)
VALUES :rows
ON DUPLICATE KEY UPDATE
    shares = shares + VALUES(shares),
    shared_ms = VALUES(shared_ms),
    request = IF(
        (due_ms IS NULL OR due_ms < fetched_ms) AND waits_for IS NULL
            AND (again_ms <= :now OR fetched_ms < VALUES(again_ms)),
        VALUES(request),
        request
    ),
    due_ms = IF(
        (due_ms IS NULL OR due_ms < fetched_ms) AND waits_for IS NULL
            AND (again_ms <= :now OR fetched_ms < VALUES(again_ms)),
        :now,
        due_ms
    );
