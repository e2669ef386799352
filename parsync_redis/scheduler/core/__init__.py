"""The decisions of a scheduler, without I/O: copies of the state, queue, choice of seats."""
