"""Segments: looked at, and made whole again from their WARC files."""
