"""What developers start: `parsync dev`, the demo, the embedded server, the pytest plug-in."""
