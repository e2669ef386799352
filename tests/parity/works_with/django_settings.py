"""Django's settings: results and the schedule of beat are in a database."""

import os

SECRET_KEY = "not secret"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("WORKS_WITH_DATABASE", ":memory:"),
    }
}
INSTALLED_APPS = ["django.contrib.contenttypes", "django_celery_results", "django_celery_beat"]
USE_TZ = True
CELERY_BROKER_URL = os.environ.get("CELERY_BROKER_URL", "redis://127.0.0.1:1/0")
CELERY_RESULT_BACKEND = "django-db"
CELERY_RESULT_EXTENDED = True
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
