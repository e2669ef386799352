"""Damaged state and garbage: it is found, put away and repaired, and no process dies of it."""
