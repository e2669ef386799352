"""`parsync serve`: pages, HTTP API, metrics."""
