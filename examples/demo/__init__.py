"""The demo: four different Celery workers measure Python's standard library, one task
per module.
"""
