"""Names of keys and the format of messages."""
