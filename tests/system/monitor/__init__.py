"""Signs of a running cluster: events, health files, logs, spans."""
