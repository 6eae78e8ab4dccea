"""Long work is done by workers that share the files of the web processes, and left alone by those that do not."""

import asyncio
import time

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from channels.layers import get_channel_layer
from django.db import connection

from apps.accounts.job_declarations import BackgroundJob, background_job, load_job
from apps.agents.models import Agent
from apps.rollouts.engine.background_jobs import BackgroundJobs
from apps.rollouts.engine.worker import RolloutWorker
from apps.rollouts.notifications import WORKER_CHANNEL
from tests.deadlines import wait_until_async
from tests.factories import make_agent

pytestmark = pytest.mark.usefixtures("migrated")
asked: list[int] = []


def note() -> bool:
    asked.append(1)
    return False


@pytest.mark.parametrize(("background_jobs", "times"), [(True, 1), (False, 0)])
def test_a_worker_does_background_jobs_unless_told_to_leave_them(settings, background_jobs, times):
    settings.WORKER_BACKGROUND_JOBS = ["tests.rollouts.test_background_jobs.note"]
    asked.clear()

    async def work() -> None:
        worker = RolloutWorker(None, [WORKER_CHANNEL], get_channel_layer(), seats=1, background_jobs=background_jobs)
        working = asyncio.create_task(worker.handle())
        if background_jobs:
            await wait_until_async(lambda: bool(asked))
        else:
            await wait_until_async(lambda: bool(worker.lease))
            await asyncio.sleep(0.7)
        worker.stop()
        await working

    async_to_sync(work)()
    assert len(asked) == times


@background_job(waiting=lambda: Agent.objects.filter(slug="wanted"))
def note_wanted() -> bool:
    asked.append(2)
    return False


def test_a_job_runs_only_while_it_has_rows(settings):
    settings.WORKER_BACKGROUND_JOBS = [
        "tests.rollouts.test_background_jobs.note",
        "tests.rollouts.test_background_jobs.note_wanted",
    ]
    asked.clear()

    async def work() -> None:
        worker = RolloutWorker(None, [WORKER_CHANNEL], get_channel_layer(), seats=1)
        working = asyncio.create_task(worker.handle())
        await wait_until_async(lambda: asked.count(1) >= 2)
        assert 2 not in asked
        await sync_to_async(make_agent)(slug="wanted")
        await wait_until_async(lambda: 2 in asked)
        worker.stop()
        await working

    async_to_sync(work)()


connections: list[object] = []


def note_connection() -> bool:
    with connection.cursor():
        connections.append(connection.connection)
    return False


@background_job()
def note_connection_too() -> bool:
    return note_connection()


def test_jobs_that_are_due_together_share_a_connection_which_is_closed_after_the_last(settings):
    settings.WORKER_BACKGROUND_JOBS = [
        "tests.rollouts.test_background_jobs.note_connection",
        "tests.rollouts.test_background_jobs.note_connection_too",
    ]
    connections.clear()

    async def work() -> None:
        worker = RolloutWorker(None, [WORKER_CHANNEL], get_channel_layer(), seats=1)
        working = asyncio.create_task(worker.handle())
        await wait_until_async(lambda: len(connections) >= 4)
        worker.stop()
        await working

    async_to_sync(work)()
    assert connections[0] is connections[1]
    assert connections[2] is connections[3]
    assert connections[1] is not connections[2]


BUSY_SECONDS = 30.0


@background_job(waiting=Agent.objects.all)
def stay_busy() -> bool:
    """Has more to do until `note_wanted` has run, or for BUSY_SECONDS."""
    time.sleep(0.05)
    asked.append(3)
    return 2 not in asked and asked.count(3) < BUSY_SECONDS / 0.05


def test_a_job_that_is_always_busy_shares_its_thread_with_jobs_that_become_due(settings):
    settings.WORKER_BACKGROUND_JOBS = [
        "tests.rollouts.test_background_jobs.stay_busy",
        "tests.rollouts.test_background_jobs.note_wanted",
    ]
    asked.clear()

    async def work() -> None:
        worker = RolloutWorker(None, [WORKER_CHANNEL], get_channel_layer(), seats=1)
        working = asyncio.create_task(worker.handle())
        await wait_until_async(lambda: 3 in asked)
        await sync_to_async(make_agent)(slug="wanted")
        await wait_until_async(lambda: 2 in asked)
        assert asked.count(3) < BUSY_SECONDS / 0.05
        worker.stop()
        await working

    async_to_sync(work)()


def test_every_job_of_the_settings_is_declared_and_an_empty_installation_has_nothing_for_most(settings):
    jobs = [load_job(path) for path in settings.WORKER_BACKGROUND_JOBS]
    assert [job.path for job in jobs] == settings.WORKER_BACKGROUND_JOBS
    assert [job.path for job in jobs if job == BackgroundJob(job.path, job.work)] == []
    waiting = BackgroundJobs(settings.WORKER_BACKGROUND_JOBS, group="", in_database=sync_to_async)._waiting()
    assert set(waiting.values()) == {False}
    assert len(waiting) == len([job for job in jobs if job.waiting])
