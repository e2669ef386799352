"""The lab: benches, the simulator, and their commands. Nothing outside imports it; cli/app.py names its commands."""
