"""The process around the core: it reads, calls and listens, and keeps the scheduler's
membership.
"""
