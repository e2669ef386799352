"""The decisions of a scheduler, without I/O: its view, its queue, and its choice of seats."""
