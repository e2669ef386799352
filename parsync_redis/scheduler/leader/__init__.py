"""The duties of the leader, one in a module; janitor.py does them in turn."""
