"""Names of keys, and formats of messages."""
