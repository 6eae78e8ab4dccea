"""`manage.py drain_worker`."""

import pytest
from django.core.management import CommandError, call_command

from apps.rollouts.models import Worker

pytestmark = pytest.mark.django_db


def worker(**fields):
    return Worker.objects.create(**{"host": "gpu1", "pid": 7, "seats": 64, "busy": 3, **fields})


def drain(capsys, *words):
    call_command("drain_worker", *map(str, words))
    return capsys.readouterr().out


def states():
    return list(Worker.objects.order_by("pk").values_list("state", flat=True))


def test_without_a_name_it_lists_who_is_alive_and_drains_nobody(capsys):
    one = worker(group="big")
    worker(state="stopped")
    assert drain(capsys) == f"{one.pk}: gpu1:7, group big, 3 of 64 seats busy\n"
    assert states() == ["active", "stopped"]


def test_nobody_alive_is_said(capsys):
    assert drain(capsys) == "No worker is alive.\n"


def test_named_workers_drain(capsys):
    one, _, three = worker(), worker(), worker()
    said = drain(capsys, one.pk, three.pk)
    assert said.splitlines()[0] == f"worker {one.pk} on gpu1:7 drains: it runs 3 rollouts to their end."
    assert states() == ["draining", "active", "draining"]


def test_all_workers_of_a_host_drain(capsys):
    worker(), worker(host="gpu2"), worker(state="lost")
    drain(capsys, "--host", "gpu1")
    assert states() == ["draining", "active", "lost"]


def test_an_unknown_worker_is_named_and_nobody_drains(capsys):
    one = worker()
    with pytest.raises(CommandError, match=f"There is no worker {one.pk + 5}: manage.py drain_worker lists"):
        drain(capsys, one.pk, one.pk + 5)
    assert states() == ["active"]


def test_a_worker_that_is_gone_cannot_be_drained(capsys):
    gone = worker(state="stopped")
    with pytest.raises(CommandError, match="is stopped: only an active worker can be drained"):
        drain(capsys, gone.pk)
