"""The reference store, which is the specification, and what holds the scripts to it."""
