"""Ten models on four Celery workers: how often a model must be loaded, with and without `warm`."""
