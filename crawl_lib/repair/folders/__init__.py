"""Folders of iterations and seeds: looked at, and their small files made again."""
