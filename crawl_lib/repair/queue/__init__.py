"""A node's queue: looked at, and made usable again."""
