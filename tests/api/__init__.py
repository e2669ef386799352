"""docs/api.md: made of docstrings and of examples that run."""
