"""`parsync serve`: one process beside the schedulers that shows the cluster over HTTP. It only reads."""
