"""One more row of each noun, by the name of its list, with everything that the list shows about it."""

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

from django.contrib.sessions.models import Session
from django.utils import timezone

from apps.accounts.api_keys import create_api_key
from apps.accounts.audit_log import record
from apps.accounts.invitations import create_invitation
from apps.accounts.models import BrowserSession, SavedView, User
from apps.accounts.table_preferences import save_view
from apps.alerts.models import Delivery, Event, Subscription
from apps.exports.models import Export, TraceDestination, TraceSend
from apps.exports.trace_sends.destination_changes import save_destination
from apps.gym.stored_rules import RULES
from apps.pairs.models import PairSet, PreferencePair
from apps.policies.models import PolicyModel, RedactionPattern
from apps.reviews.models import Comment, QueueItem
from apps.reviews.reviews.flags import raise_flag
from apps.reviews.reviews.reward_overrides import override_reward
from apps.rollouts.models import CollectionDeletion, Recheck, Reverification, Rollout, Scan, ScanAnswer, Worker
from apps.tasks.models import ColumnMapping, Deletion, Suite, Upload
from apps.tasks.suite_changes import save_suite
from apps.tracking.models import HubPush, TrackedRun, Tracker
from apps.tracking.run_links import track_collection
from apps.tracking.tracker_changes import save_tracker
from apps.tracking.tracking_spec import TrackingSpec
from tests.alerts.receiver import subscribe
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
from tests.reviews.queues import annotator, judge, make_queue, make_rubric

_pids = count(1)


def make_upload() -> Upload:
    dataset = make_dataset()
    return Upload.objects.create(dataset=dataset, version=dataset.latest_version(), state=Upload.State.READY)


def make_mapping() -> ColumnMapping:
    number = next(_pids)
    return ColumnMapping.objects.create(slug=f"columns-{number}", name=f"Columns {number}", mapping={"input": "q"})


def make_suite() -> Suite:
    suite = Suite(slug=f"suite-{next(_pids)}", name="Suite", datasets=[make_dataset(), make_dataset()])
    return save_suite(suite=suite, user=None)


def make_task() -> Any:
    return make_dataset([make_row()]).latest_version().tasks.get()


def make_pair_set() -> PairSet:
    return PairSet.objects.create(collection=make_collection(), counts={"paired": 1})


def make_pair() -> PreferencePair:
    pair_set = make_pair_set()
    chosen = make_rollout(pair_set.collection, trace=[])
    rejected = make_rollout(pair_set.collection, trace=[], reward=0.0)
    return PreferencePair.objects.create(
        pair_set=pair_set, task=chosen.task, chosen=chosen, rejected=rejected, margin=1.0
    )


def key_owner() -> User:
    """Whose keys the list of one's own keys shows."""
    return User.objects.filter(username="key-owner").first() or make_user(username="key-owner")


def make_shared_view() -> SavedView:
    name = f"View {next(_pids)}"
    return save_view(user=make_user(), table="rollouts", name=name, is_shared=True)


def make_scan(**fields: Any) -> Scan:
    """A scan of one rollout, by default paused. Unless it is a draft, it has an answer."""
    given = {"name": "Failures", "question": "Did a tool fail?", "budget": 1.0, "max_characters": 10_000}
    judge = PolicyModel.objects.first() or make_policy_model()
    counts = {"state": Scan.State.PAUSED, "total": 1, "answered": 1}
    scan = Scan.objects.create(**{**given, "judge_model": judge, **counts, **fields})
    if scan.state == Scan.State.DRAFT:
        return scan
    ScanAnswer.objects.create(
        scan=scan,
        rollout=Rollout.objects.first() or make_rollout(make_collection()),
        state=ScanAnswer.State.ANSWERED,
        attempt=1,
        answer="yes",
        reason="It did.",
        citations=[{"event": 3, "quote": "4"}],
    )
    return scan


def make_item() -> QueueItem:
    return make_queue(pairs=1).items.get()


def make_subscription() -> Subscription:
    # Other kinds would record events with random ids when further rows are made.
    name = f"Subscription {next(_pids)}"
    return subscribe("https://alerts.example.com/hook", name=name, event_kinds=["disk.low"])


def make_trace_destination() -> TraceDestination:
    destination = TraceDestination(name=f"Receiver {next(_pids)}")
    headers = {"Authorization": "Basic cGstbGYtMTIzOnNrLWxmLTQ1Ng=="}
    return save_destination(destination=destination, url="https://otlp.example.com/v1/traces", headers=headers)


def make_trace_send() -> TraceSend:
    export = Export.objects.create(format="otel_genai", collection=make_collection())
    return TraceSend.objects.create(export=export, destination=make_trace_destination(), total=3, sent=1)


def make_delivery() -> Delivery:
    number = next(_pids)
    event = Event.objects.create(id=UUID(int=number), kind="export.ready", key=str(number), text="Ready", path="/")
    return Delivery.objects.create(
        event=event, subscription=make_subscription(), state="failed", retry_until=timezone.now()
    )


def make_session() -> BrowserSession:
    """A session in another browser of the user who has the keys."""
    session = Session.objects.create(
        session_key=f"session{next(_pids)}", expire_date=timezone.now() + timedelta(days=1)
    )
    return BrowserSession.objects.create(
        session=session, user=key_owner(), method="password", device="Firefox on Linux", address="192.0.2.7"
    )


def make_tracker(**fields: Any) -> Tracker:
    given = {"kind": "mlflow", "name": f"Tracker {next(_pids)}", "address": "https://mlflow.example.com"}
    return save_tracker(tracker=Tracker(**{**given, **fields}), secret=None)


def make_tracked_run(**fields: Any) -> TrackedRun:
    collection = fields.pop("collection", None) or make_collection()
    return track_collection(TrackingSpec(collection=collection, tracker=make_tracker(), **fields))


def make_push(**fields: Any) -> HubPush:
    export = fields.pop("export", None) or Export.objects.create(format="trl_sft", collection=make_collection())
    return HubPush.objects.create(export=export, repository="my-org/rollouts", **fields)


MAKERS: dict[str, Callable[[], Any]] = {
    "datasets": make_dataset,
    "suites": make_suite,
    "uploads": make_upload,
    "tasks": make_task,
    "column-mappings": make_mapping,
    "deletions": lambda: Deletion.objects.create(dataset=make_dataset(), name="sums", whole=True),
    "environments": make_environment,
    "policy-models": make_policy_model,
    "agents": make_agent,
    "collections": make_collection,
    "collection-deletions": lambda: CollectionDeletion.objects.create(collection=make_collection(), name="sums"),
    "rollouts": lambda: make_rollout(make_collection()),
    "pair-sets": make_pair_set,
    "pairs": make_pair,
    "exports": lambda: Export.objects.create(format="trl_sft", collection=make_collection()),
    "reverifications": lambda: Reverification.objects.create(collection=make_collection()),
    "comments": lambda: Comment.objects.create(rollout=make_rollout(make_collection()), author=make_user(), text="ok"),
    "saved-views": make_shared_view,
    "rubrics": make_rubric,
    "queues": lambda: make_queue(pairs=1),
    "queue-items": make_item,
    "reviews": lambda: judge(make_queue(pairs=1), annotator()),
    "flags": lambda: raise_flag(rollout=make_rollout(make_collection()), kind="unsafe", author=make_user()),
    "reward-overrides": lambda: override_reward(
        rollout=make_rollout(make_collection()), reward=0.5, reason="so", author=make_user()
    ),
    "me/keys": lambda: create_api_key(user=key_owner(), name="cluster", scopes=["export"])[0],
    "me/sessions": make_session,
    "people": make_user,
    "invitations": lambda: create_invitation(role="annotator", by=None)[0],
    "audit-entries": lambda: record(user=None, action="dataset.create", target="sums"),
    "redaction-patterns": lambda: RedactionPattern.objects.create(kind="name", text=f"badge-{next(_pids)}"),
    "alert-subscriptions": make_subscription,
    "alert-deliveries": make_delivery,
    "trace-destinations": make_trace_destination,
    "trace-sends": make_trace_send,
    "trackers": make_tracker,
    "tracked-runs": make_tracked_run,
    "hub-pushes": make_push,
    "workers": lambda: Worker.objects.create(host="localhost", pid=next(_pids), seats=4),
    "scans": make_scan,
    "rechecks": lambda: Recheck.objects.create(collection=make_collection(), rules=RULES),
}
