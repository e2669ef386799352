"""`parsync serve`: a process beside the schedulers that shows the cluster over HTTP.

The flags that write_access.py reads let submitters and operators change the cluster.
"""
