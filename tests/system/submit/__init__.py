"""How work comes in: the clients, `apply_async`, the loader."""
