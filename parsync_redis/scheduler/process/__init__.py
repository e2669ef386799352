"""The process around the core: it reads, calls, listens, and keeps the scheduler's membership."""
