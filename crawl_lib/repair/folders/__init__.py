"""Folders of iterations and seeds: checked, and their small files made again."""
