"""`parsync serve`: a process beside the schedulers that shows the cluster over HTTP.

doors.py lets some change it.
"""
