"""The processes that fetch: how they are started and confined, and what one does with a page."""
