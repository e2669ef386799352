"""TLS, passwords, and hostile text at a terminal."""
