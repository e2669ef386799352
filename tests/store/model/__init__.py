"""Property tests that compare the scripts with the store in memory (store/reference), their
specification.
"""
