"""The tests of parsync-redis."""
