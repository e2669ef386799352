"""The rights of each login, on real servers."""
