"""Redis servers that die, hang, refuse, forget or are not there yet."""
