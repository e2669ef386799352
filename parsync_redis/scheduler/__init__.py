"""A scheduler: its view, its core without I/O, the loop around it, and the leader's work."""
