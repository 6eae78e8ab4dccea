"""Link collections to runs at trackers: create, stop, send again, delete."""

import re
import shutil

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.audit_log import record, update_row
from apps.accounts.models import User
from apps.gym.request_refusals import Refusal
from apps.gym.storable import clean_line
from apps.rollouts.steering.trace_deletion import explain_deleted_traces
from apps.tracking.models import TrackedRun, Tracker
from apps.tracking.run_settings import collection_settings
from apps.tracking.tracker_clients import run_folder
from apps.tracking.tracking_spec import TrackingSpec

State = TrackedRun.State
_PROJECT = re.compile(r"[^\W_][\w.\- ]*")


class TrackingRefused(Refusal, code="tracking-refused"):
    """Raised if a collection cannot be linked to a run. `argument` is the field to change."""


class RunNotActive(Refusal, status=409, code="run-state"):
    """Raised if the state of the run does not allow the change."""


def track_collection(spec: TrackingSpec, *, user: User | None = None) -> TrackedRun:
    """Link a collection to a new run. Workers send it within seconds. Raise TrackingRefused."""
    project = clean_line((spec.project or spec.tracker.project).strip(), 100)
    if not _PROJECT.fullmatch(project):
        raise TrackingRefused(
            "Begin with a letter or digit, and use letters, digits, spaces, dots, hyphens and underscores.", "project"
        )
    run = TrackedRun(
        tracker=spec.tracker,
        collection=spec.collection,
        project=project,
        name=clean_line(spec.name.strip() or spec.collection.label, 200),
        samples=spec.samples,
        config=collection_settings(spec.collection),
        created_by=user,
    )
    try:
        with transaction.atomic():
            run.save(force_insert=True)
            record(
                user=user,
                action="tracked_run.create",
                target=f"collection {spec.collection.pk}",
                tracker=spec.tracker.name,
                project=project,
                samples=spec.samples,
            )
    except IntegrityError:
        raise TrackingRefused(
            f"{spec.collection.label} is already tracked in {spec.tracker}. Send that run again, or delete it first.",
            "tracker",
        ) from None
    return run


def stop_run(*, run: TrackedRun, user: User | None = None) -> TrackedRun:
    """Stop sending. Points are no longer recorded. Raise RunNotActive."""
    active = {"state": State.ACTIVE}
    stopped = {"state": State.STOPPED}
    if not update_row(run, stopped, only=active, user=user, action="tracked_run.stop"):
        raise RunNotActive(f"Only an active run can be stopped. This one is {run.get_state_display()}.")
    return run


def resend_run(*, run: TrackedRun, user: User | None = None) -> TrackedRun:
    """Continue a finished, stopped or failed run: send the missing points and current metrics. Raise RunNotActive.

    Points that the tracker already has are not duplicated. Sample rollouts are replaced.
    """
    if run.samples and (problem := explain_deleted_traces([run.collection], remedy="")):
        raise RunNotActive(f"{problem} Sending again would remove the sample rollouts from the run.")
    now = timezone.now()
    fresh = {
        "state": State.ACTIVE,
        "is_complete": False,
        "error": "",
        "failing_since": None,
        "measure_at": now,
        "next_attempt_at": now,
    }
    ended = {"state__in": [State.FINISHED, State.STOPPED, State.FAILED]}
    if not update_row(run, fresh, only=ended, user=user, action="tracked_run.resend"):
        raise RunNotActive("The run is active. Stop it first.")
    return run


def delete_run(*, run: TrackedRun, user: User | None = None) -> None:
    """Delete the link, its points and its local files. The run at a tracker's server is kept."""
    with transaction.atomic():
        record(
            user=user, action="tracked_run.delete", target=f"collection {run.collection_id}", tracker=str(run.tracker)
        )
        if run.tracker.kind != Tracker.Kind.TRACKIO:
            folder = run_folder(run)
            transaction.on_commit(lambda: shutil.rmtree(folder, ignore_errors=True))
        run.delete()
