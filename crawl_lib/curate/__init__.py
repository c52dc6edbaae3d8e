"""What people do with a crawl by hand: forget, drop and compact pages, import archives, make one index."""
