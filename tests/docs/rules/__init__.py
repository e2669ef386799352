"""Rules about pages, without a server."""
