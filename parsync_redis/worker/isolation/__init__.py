"""Isolation on the machine (Linux): one run a slot, and no run after its lease."""
