"""Placement: which nodes fit a task, which are best, and why none fits. Pure functions."""
