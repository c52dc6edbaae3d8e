-- Which of these submissions were counted already. Both kinds of server.
SELECT id FROM krakepagesrepeats WHERE id IN (:keys);
