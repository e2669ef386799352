"""The store: scripts, their reference in Python, the rights of logins."""
