"""A Celery app of a Django project.

Run as a program, it makes the database and submits when a transaction commits.
"""

import os

import django
from celery import Celery
from django.core.management import call_command

from parsync_redis import Parsync

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.parity.works_with.django_settings"
app = Celery("works_with_django")
app.config_from_object("django.conf:settings", namespace="CELERY")
Parsync(app)


@app.task(name="django.double", parsync={"require": {"kind": "django"}})
def double(number: int) -> int:
    return 2 * number


def prepare() -> None:
    """Make the tables and a row of beat's schedule; print the id of a task that was submitted on
    commit.
    """
    django.setup()
    call_command("migrate", verbosity=0)
    from django.db import transaction
    from django_celery_beat.models import IntervalSchedule, PeriodicTask

    every, _ = IntervalSchedule.objects.get_or_create(every=1, period=IntervalSchedule.SECONDS)
    PeriodicTask.objects.create(name="beaten", task=double.name, args="[21]", interval=every)
    with transaction.atomic():
        double.delay_on_commit(8)
    with transaction.atomic():
        double.delay_on_commit(9)
        transaction.set_rollback(True)


if __name__ == "__main__":
    prepare()
