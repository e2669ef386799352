"""Chaos layers 3 and 4: real processes under random faults, and the check of their history; see
docs/chaos.md.
"""
