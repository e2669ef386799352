"""The documentation: its site, its code blocks, its pictures."""
