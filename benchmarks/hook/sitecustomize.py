"""Loaded at its start by each Python process of a crawl whose checkpoints are measured."""

from benchmarks.checkpoints import install

install()
