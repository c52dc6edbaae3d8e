"""The segment room (docstring follows)."""
