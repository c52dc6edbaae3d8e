-- Forgets submissions that were counted so long ago. Both kinds of server.
DELETE FROM krakepagesrepeats WHERE made_ms < :now - :keep_ms;
