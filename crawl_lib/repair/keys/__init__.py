"""Key tables: compared with pages and queues, and filled from both."""
