"""Brokers and result backends that die, hang or refuse."""
