"""A node's queue: checked, and made usable again."""
