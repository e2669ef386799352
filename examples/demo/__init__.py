"""The demo: four different Celery workers measure Python's standard library, module by module."""
