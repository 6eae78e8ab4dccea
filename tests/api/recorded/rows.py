"""The rows that the recorded requests are sent to; those that documented examples name have their numbers and names."""

import io
import json
from types import SimpleNamespace
from typing import Any

from apps.accounts.models import Role, User
from apps.accounts.table_preferences import save_view
from apps.agents.models import Agent
from apps.api.framework.body_examples import RUBRIC
from apps.environments.models import Environment
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.exports.models import Export
from apps.pairs.models import PairSet, PreferencePair
from apps.pairs.pair_sets import PairOrder, build_pairs, queue_pair_set
from apps.reviews.models import PairVerdict, Review
from apps.reviews.queues.queue_changes import close_queue
from apps.reviews.reviews.reward_overrides import override_reward
from apps.rollouts.models import Collection
from apps.rollouts.reverification.reverification_jobs import queue_reverification
from apps.rollouts.reverification.reverification_spec import ReverificationOrder
from apps.tasks.dataset_deletion import queue_deletion
from apps.tasks.models import ColumnMapping, Task, Upload
from apps.tasks.received_files import create_upload, store_file
from apps.tasks.upload_choices import Choices
from apps.tasks.upload_jobs import upload_file
from tests.api.rows import MAKERS
from tests.factories import (
    make_agent,
    make_collection,
    make_dataset,
    make_environment,
    make_policy_model,
    make_rollout,
    make_row,
    make_user,
)
from tests.reviews.queues import claim, judge, make_queue, make_rubric

FAILED: dict[str, Any] = {"status": "failed", "reward": None, "stop_reason": "", "error_kind": "policy_error"}
FILE = b"\n".join(json.dumps(make_row(f"What is {n} + 1?", str(n + 1))).encode() for n in range(4))


def make_rows() -> SimpleNamespace:
    """Rows by noun, in the states that operations ask for. There must be none before."""
    for rows in (Environment, Agent):
        rows.objects.all().delete()
    admin = make_user(Role.ADMIN, username="admin")
    make_agent(slug="default", name="Default")
    environment = make_environment(slug="arithmetic")
    sums = make_dataset([make_row(), make_row("What is 3 + 3?", "6")], slug="sums", environment=environment)
    for task, number in zip(Task.objects.order_by("pk"), (11, 12), strict=True):
        Task.objects.filter(pk=task.pk).update(id=number, split="train")
    made = SimpleNamespace(
        admin=admin,
        viewer=make_user(Role.VIEWER, username="viewer"),
        empty=make_dataset([], slug="empty"),
        unused_dataset=make_dataset(slug="unused"),
        unused_rubric=make_rubric(slug="unused"),
        **{noun.replace("-", "_").replace("/", "_"): maker() for noun, maker in MAKERS.items()},
    )
    make_rubric(slug="clarity", criteria=RUBRIC["criteria"])
    ColumnMapping.objects.create(slug="questions", name="Questions", mapping={"input": "question"})
    made.datasets, made.environments, made.tasks = sums, environment, Task.objects.get(pk=11)
    made.policy_models = make_policy_model(slug="qwen")
    made.agents = Agent.objects.get(slug="default")
    _add_collections(made, admin)
    _add_reviews(made, admin)
    _add_uploads(made)
    made.view = save_view(user=admin, table="rollouts", name="Mine")
    return made


def _add_collections(made: SimpleNamespace, admin: User) -> None:
    state, sums = Collection.State, made.datasets
    named: dict[str, Any] = {"dataset": sums, "agent": made.agents, "policy_model": made.policy_models}
    counts = {"total": 4, "completed": 3, "failed": 1, "rewarded": 3, "reward_sum": 2.0}
    made.done = make_collection(pk=7, state=state.COMPLETED, **named, **counts)
    other = make_collection(pk=8, state=state.COMPLETED, **named, **counts)
    made.rollouts = make_rollout(made.done, pk=41)
    for collection in (made.done, other):
        for fields in ({}, {"reward": 0.0}, {"redactions": {"bearer": 1}, "flagged": True}, FAILED):
            make_rollout(collection, **fields)
    made.finished = make_collection(state=state.COMPLETED, total=1, completed=1, **named)
    made.deletable = make_rollout(made.finished)
    made.cancelled = make_collection(state=state.CANCELLED, **named)
    made.running = make_collection(state=state.RUNNING, **named)
    made.paused = make_collection(state=state.PAUSED, pause_reason=Collection.PauseReason.ASKED, **named)
    made.elsewhere = make_collection(state=state.COMPLETED, dataset=made.empty)
    made.pair_sets = build_pairs(PairOrder(collection=made.done, name="Changing"))
    made.later = build_pairs(PairOrder(collection=made.done, name="Changing"))
    made.waiting_pair_set = queue_pair_set(PairOrder(collection=made.done))
    made.used_pair_set = PairSet.objects.create(collection=made.done, counts={"paired": 1})
    one, two = made.done.rollouts.filter(status="completed")[:2]
    for number, pair_set in ((5, made.pairs.pair_set), (6, made.used_pair_set)):
        PreferencePair.objects.create(pk=number, pair_set=pair_set, task=one.task, chosen=one, rejected=two, margin=0.5)
    made.pairs = PreferencePair.objects.get(pk=5)
    Export.objects.create(format="trl_dpo", collection=made.done, pair_set=made.used_pair_set)
    written = queue_export(ExportOrder(format="trl_sft", collection=made.done, filters={"include_flagged": True}))
    made.written = write_export(export=written)
    made.writing = Export.objects.create(format="trl_sft", collection=made.done, state=Export.State.WRITING)
    made.reverifications = queue_reverification(ReverificationOrder(collection=made.done))
    made.overridden = override_reward(rollout=one, reward=0.5, reason="Half of the work.", author=admin)


def _add_reviews(made: SimpleNamespace, admin: User) -> None:
    made.open_review, made.said = claim(make_queue(pairs=1), admin), judge(make_queue(pairs=1), admin)
    PairVerdict.objects.filter(review=made.said).update(review=512)
    Review.objects.filter(pk=made.said.pk).update(id=512)
    made.said = Review.objects.get(pk=512)
    made.used_rubric = make_queue(pairs=1, size=1).rubric
    made.closed = make_queue(pairs=1)
    close_queue(queue=made.closed, user=admin)


def _add_uploads(made: SimpleNamespace) -> None:
    dataset, name = make_dataset([], slug="loaded"), "rows.jsonl"
    check = {"choices": Choices(check_only=True), "draft": True}
    made.uploads = upload_file(dataset=dataset, stream=io.BytesIO(FILE + b"\nnonsense"), filename=name)
    made.draft = store_file(dataset=dataset, stream=io.BytesIO(FILE), filename=name, **check)
    made.receiving = create_upload(dataset=dataset, filename=name)
    made.vanishing = make_dataset([], slug="vanishing")
    queue_deletion(dataset=made.vanishing)
    made.loading = make_dataset([], slug="loading")
    Upload.objects.create(dataset=made.loading, state=Upload.State.LOADING)
