"""The simulator: small runs of each experiment, the same for the same seed; and what it refuses."""
