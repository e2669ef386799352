"""The duties of the leader, one a module; janitor.py does them in turn."""
