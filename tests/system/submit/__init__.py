"""Ways to submit: the clients, `apply_async`, the loader."""
