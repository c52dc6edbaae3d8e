"""Segments: checked, and made whole again from their WARC files."""
