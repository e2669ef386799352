"""Tools of developers: `parsync dev`, the demo, the embedded server, the pytest plug-in."""
