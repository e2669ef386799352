"""`parsync serve`: one process beside the schedulers that shows the cluster over HTTP. doors.py says who may change it."""
