"""The scheduler.

The core, which does no I/O, the process around the core, and the leader's work.
"""
