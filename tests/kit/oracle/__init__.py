"""The oracle of the tests: a second description of what must be true of a cluster's state.

It reads every key in Python. The scripts that look are held to it (tests/store/lua/test_audit.py).
"""
