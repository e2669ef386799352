"""Why a task waits, and what the commands list."""
