"""The scheduler: the core without I/O, the process around the core, and the leader's work."""
