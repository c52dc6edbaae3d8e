"""The stage `crawl`: one node's task of one iteration, from the lock to the segment. See the package's docstring."""
