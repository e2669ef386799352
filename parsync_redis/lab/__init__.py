"""The lab: benches, the simulator, and their commands. Nothing outside of it imports it."""
