"""What people and programs look at: the audit of the state, explanations, metrics, logs."""
