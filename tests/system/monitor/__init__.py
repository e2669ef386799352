"""What one watches a cluster by: events, health files, logs, spans."""
