-- Lets rows wait for the targets of their redirects. The caller submits the targets afterwards; at its next start the
-- service does so for each row that waits. `:targets`, `:requests`, `:epochs`: a WHEN for each row. MySQL assigns from
-- left to right, so `epoch` comes last. Both kinds of server.
UPDATE krakepages
SET waits_for = CASE hash :targets END,
    request = CASE hash :requests END,
    due_ms = NULL,
    epoch = CASE hash :epochs END
WHERE hash IN (:keys) AND epoch <= CASE hash :epochs END;
