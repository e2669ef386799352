"""Replay traces of real clusters: their nodes and their tasks, by the product's own schedulers."""
