"""Schedulers, workers, clients and servers together; a folder for each behaviour."""
