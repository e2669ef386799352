"""What goes over the wire: keys and messages."""
