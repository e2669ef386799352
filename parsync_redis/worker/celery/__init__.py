"""All that depends on Celery's internals: bootsteps, the consumer, requests and delivery."""
