"""The crawl directory on the DFS: folders, segments and seeds, what nodes say there, and what an iteration is named."""
