"""The demo: measures every module of Python's standard library, each as one task, on four unlike Celery workers."""
