"""Judged collections, and what an answer is worth."""
