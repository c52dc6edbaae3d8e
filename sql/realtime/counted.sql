-- Notes submissions that are counted, in the transaction that counts. Both kinds of server.
REPLACE INTO krakepagesrepeats (id, made_ms) VALUES :rows;
