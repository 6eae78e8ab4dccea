"""Figures from counted blocks are those of a scan, after any sequence of changes."""

import dataclasses
import random
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.rollouts.engine.claiming import Slots, claim_rollouts
from apps.rollouts.engine.worker_leases import reap_leases, release_lease
from apps.rollouts.metrics import figure_blocks
from apps.rollouts.metrics.collection_figures import measure_collection
from apps.rollouts.metrics.figure_blocks import count_marked_blocks
from apps.rollouts.models import Collection, CollectionDeletion, FigureBlock, FigureMark, Reverification
from apps.rollouts.reverification.reverification_jobs import apply_reverification
from apps.rollouts.steering.collection_deletion import delete_next_collection, queue_collection_deletion
from apps.rollouts.steering.controls import cancel_collection, retry_failed
from apps.rollouts.steering.rollout_deletion import queue_rollout_deletion
from tests.factories import make_row, make_worker
from tests.rollouts.finished import finish_reverification
from tests.rollouts.stored import NAMES, needs_shared
from tests.rollouts.test_importing import import_these, shared_files
from tests.rollouts.work import end, expire, plan, record

pytestmark = pytest.mark.django_db

TASKS = 80


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(figure_blocks, "BLOCK_ROLLOUTS", 24)
    monkeypatch.setattr(figure_blocks, "BLOCKS_AT_ONCE", 2)
    monkeypatch.setattr(figure_blocks, "SETTLED_SECONDS", 0.0)


@pytest.fixture
def collection():
    return plan([make_row(f"What is {n} * 3?", str(n * 3)) for n in range(TASKS)])


def rounded(value):
    """The value with 9 significant digits, since sums of floats depend on their order."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list | tuple) else value


def figures(collection):
    return rounded(dataclasses.asdict(measure_collection(collection)))


def scanned(collection, monkeypatch):
    with monkeypatch.context() as without_blocks:
        without_blocks.setattr(figure_blocks, "_VERSION", b"none")
        return figures(collection)


def count_all():
    while count_marked_blocks():
        pass
    assert not FigureMark.objects.exists()


def outcome(draw, claim):
    """A way for an attempt to end."""
    used = {
        "output_tokens": draw.randint(0, 400),
        "input_tokens": draw.randint(1, 900),
        "cost": draw.random(),
        "duration": draw.random(),
        "tools": {draw.choice("ab"): (draw.randint(1, 3), 0, draw.random())},
    }
    status = draw.choice(["completed", "completed", "completed", "failed", "queued"])
    if status == "completed":
        used |= {
            "reward": draw.choice([0.0, 1.0, 1.0, draw.random()]),
            "answer": draw.choice("ab"),
            "components": draw.choice([{}, {"exact": 1.0}, {"exact": 0.0, "speed": draw.random()}]),
            "stop_reason": draw.choice(["answered", "max_steps"]),
        }
    return end(claim, status, **{**used, "failed": int(status == "queued")})


def run_some(draw, worker):
    claims = claim_rollouts(lease=worker.pk, slots=Slots(draw.randint(1, 40)))
    record([outcome(draw, claim) for claim in draw.sample(claims, len(claims) * 3 // 4)])


def reverify_some(draw, collection):
    ended = list(collection.rollouts.filter(status__in=["completed", "failed"]))
    job = Reverification.objects.create(collection=collection, state=Reverification.State.READY)
    for rollout in draw.sample(ended, len(ended) // 3):
        job.rewards.create(
            rollout=rollout,
            attempt=rollout.attempt,
            old_status=rollout.status,
            old_reward=rollout.reward,
            new_reward=draw.random(),
            new_components={"exact": 0.5},
            changed=True,
            stop_reason="answered",
        )
    finish_reverification(reverification=apply_reverification(reverification=job))


def delete_some(draw, collection):
    collection.refresh_from_db()
    if collection.is_finished and collection.rollouts.filter(reward__lte=0.2).exists():
        queue_rollout_deletion(collection=collection, chosen={"max_reward": 0.2})
        assert delete_next_collection()


@pytest.mark.parametrize("seed", range(3))
def test_figures_equal_a_scan_after_every_change(collection, seed, monkeypatch):
    draw = random.Random(seed)
    worker = make_worker()
    for step in range(16):
        change = draw.choice(["run", "run", "run", "run", "retry", "reverify", "lose", "leave", "delete"])
        if step == 12:
            cancel_collection(collection=collection)
        elif change == "run":
            run_some(draw, worker)
        elif change == "retry" and step < 12:
            retry_failed(collection=collection)
        elif change == "reverify":
            reverify_some(draw, collection)
        elif change == "lose":
            expire(worker)
            reap_leases()
            worker = make_worker()
        elif change == "leave":
            release_lease(worker_id=worker.pk)
            worker = make_worker()
        elif change == "delete":
            delete_some(draw, collection)
        for _ in range(draw.randint(0, 3)):
            count_marked_blocks()
        assert figures(collection) == scanned(collection, monkeypatch), (step, change)
    count_all()
    assert FigureBlock.objects.filter(collection=collection).count() > 2
    assert figures(collection) == scanned(collection, monkeypatch)


@needs_shared
def test_figures_of_an_import_equal_a_scan(monkeypatch):
    collection = import_these(*shared_files(NAMES[0])).collection
    assert figures(collection)["completed"] > 0
    count_all()
    assert figures(collection) == scanned(collection, monkeypatch)


def test_counted_figures_read_no_rollout(collection):
    count_all()
    with CaptureQueriesContext(connection) as queries:
        measure_collection(collection)
    assert not [each["sql"] for each in queries if "rollouts_rollout" in each["sql"]]


def test_the_blocks_of_a_collection_cover_all_tasks_once(collection):
    count_all()
    blocks = list(FigureBlock.objects.filter(collection=collection).values_list("first", "last"))
    assert blocks[0][0] == 0
    assert blocks[-1][1] == figure_blocks.LAST_SPAN
    assert [last + 1 for _, last in blocks[:-1]] == [first for first, _ in blocks[1:]]
    assert len(blocks) > 2


def test_a_block_is_counted_when_its_marks_have_settled(collection, monkeypatch):
    count_all()
    monkeypatch.setattr(figure_blocks, "SETTLED_SECONDS", 20.0)
    run_some(random.Random(1), make_worker())
    assert count_marked_blocks() is False
    FigureMark.objects.update(marked_at=timezone.now() - timedelta(seconds=21))
    assert count_marked_blocks() is True


def test_a_change_during_the_count_keeps_its_mark(collection, monkeypatch):
    """Another worker replaces the block, or rollouts end, after the rows were read and before the result is stored."""
    count_all()
    worker, draw, replace = make_worker(), random.Random(2), figure_blocks._replace
    run_some(draw, worker)

    def replace_late(*given):
        run_some(draw, worker)
        replace(*given)

    monkeypatch.setattr(figure_blocks, "_replace", replace_late)
    assert count_marked_blocks() is True
    assert figures(collection) == scanned(collection, monkeypatch)
    assert FigureMark.objects.exists()
    monkeypatch.setattr(figure_blocks, "_replace", lambda *given: (replace(*given), replace(*given)))
    count_all()
    assert figures(collection) == scanned(collection, monkeypatch)


def test_blocks_end_with_their_collection(collection):
    count_all()
    cancel_collection(collection=collection)
    queue_collection_deletion(collection=collection)
    assert count_marked_blocks() is False
    assert delete_next_collection()
    assert CollectionDeletion.objects.get().state == "done"
    assert not FigureBlock.objects.exists()
    assert not Collection.objects.exists()
