"""Links of collections to runs: what is recorded, who may change it, and failures that reach only the run."""

import base64
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone

from apps.accounts.models import AuditEntry
from apps.policies.secrets import decrypt_secret
from apps.rollouts.metrics.cached_figures import fresh_figures
from apps.rollouts.metrics.model_versions import track_versions
from apps.rollouts.models import Collection, Rollout
from apps.tracking import run_delivery
from apps.tracking.client_processes import run_writer
from apps.tracking.models import TrackedRun, Tracker
from apps.tracking.point_values import collection_values, version_values
from apps.tracking.run_batches import RunBatch, TrackerFailed
from apps.tracking.run_delivery import make_batch, send_runs
from apps.tracking.run_folders import sweep_run_folders
from apps.tracking.run_links import RunNotActive, TrackingRefused, delete_run, resend_run, stop_run
from apps.tracking.run_points import number_version, record_points
from apps.tracking.sample_tables import sample_rollouts
from apps.tracking.send_leases import GIVE_UP_AFTER, claim_due, store_failure
from apps.tracking.tracker_changes import save_tracker
from apps.tracking.tracker_clients import run_folder
from tests.factories import make_rollout, make_trace, make_user
from tests.tracking.site_of_trackers import (
    REWARDS,
    add_rollouts,
    finish,
    make_due,
    make_finished,
    make_running,
    make_tracker,
    track,
)

pytestmark = pytest.mark.django_db(transaction=True)
SECRET = "token-of-the-tracker"


def record() -> None:
    make_due()
    while record_points():
        pass


def steps(run: TrackedRun) -> list[tuple[str, int]]:
    return [(point.version, point.step) for point in run.points.all()]


def test_a_stored_collection_gives_its_figures_and_those_of_its_versions():
    collection = make_finished()
    run = track(collection, make_tracker("tensorboard"))
    record()
    run.refresh_from_db()
    assert steps(run) == [("", 12), ("step-100", 100), ("step-200", 200)]
    assert (run.recorded, run.is_complete) == (3, True)
    whole, first, second = run.points.all()
    assert whole.values == collection_values(fresh_figures(collection).metrics)
    versions = track_versions(policy_model=collection.policy_model, collection=collection)
    assert [first.values, second.values] == [version_values(one) for one in versions]
    assert first.values["by_version/mean_reward"] == sum(REWARDS["step-100"]) / 6


def test_points_are_recorded_while_the_collection_runs():
    collection = make_running()
    run = track(collection, make_tracker("tensorboard"))
    record()
    assert steps(run) == []
    add_rollouts(collection, "step-100")
    record()
    record()
    assert steps(run) == [("", 6)]
    # A rollout of the first version still runs, so its figures may change.
    late = make_rollout(
        collection, repeat=1, status="running", stop_reason="", reward=None, lease=1, started_at=timezone.now()
    )
    Rollout.objects.filter(model_version="").update(started_at=timezone.now() - timedelta(hours=1))
    add_rollouts(collection, "step-200")
    record()
    assert steps(run) == [("", 6), ("", 12)]
    late.delete()
    finish(collection)
    record()
    assert steps(run)[-2:] == [("step-100", 100), ("step-200", 200)]


def test_a_version_is_sent_when_its_rollouts_have_finished():
    collection = make_running()
    run = track(collection, make_tracker("tensorboard"))
    for version in REWARDS:
        add_rollouts(collection, version)
    record()
    assert steps(run) == [("", 12), ("step-100", 100)]


@pytest.mark.parametrize(
    ("version", "after", "number"),
    [("step-200", 100, 200), ("step-200", 200, 201), ("a", -1, 0), ("", 3, 4), ("v" + "9" * 30, 3, 4), ("٣", 0, 1)],
    ids=["number", "not-larger", "none", "empty", "too-long", "other-digits"],
)
def test_versions_are_numbered_in_their_order(version: str, after: int, number: int):
    assert number_version(version, after=after) == number


def test_a_collection_has_one_run_in_a_tracker():
    collection, tracker = make_finished(), make_tracker("tensorboard")
    track(collection, tracker)
    with pytest.raises(TrackingRefused) as refused:
        track(collection, tracker)
    assert refused.value.argument == "tracker"
    assert TrackedRun.objects.count() == 1


@pytest.mark.parametrize("project", ["../x", "..", "_x"], ids=["folder", "dots", "underscore"])
def test_a_project_cannot_leave_its_folder(project: str):
    with pytest.raises(TrackingRefused) as refused:
        track(make_finished(), make_tracker("trackio"), project=project)
    assert refused.value.argument == "project"


def test_two_workers_send_a_run_once_and_a_lost_one_is_replaced():
    track(make_finished(), make_tracker("tensorboard"))
    record()
    rows = TrackedRun.objects.filter(state="active")
    (first,) = claim_due(rows, most=8)
    assert claim_due(rows, most=8) == []
    make_due()
    (second,) = claim_due(rows, most=8)
    store_failure(rows, first, "late", is_final=True, failed={"state": "failed"})
    second.refresh_from_db()
    assert (second.state, second.error, second.attempts) == ("active", "", 2)


def test_a_server_that_does_not_answer_is_asked_less_often_and_then_no_more():
    run = track(make_finished(), make_tracker("mlflow", address="http://127.0.0.1:9"))
    record()
    assert send_runs()
    run.refresh_from_db()
    assert (run.state, bool(run.error), run.sent) == ("active", True, 0)
    assert run.next_attempt_at > timezone.now()
    TrackedRun.objects.update(failing_since=timezone.now() - GIVE_UP_AFTER)
    make_due()
    send_runs()
    run.refresh_from_db()
    assert run.state == "failed"


def test_a_refused_address_ends_the_run_at_once(settings):
    run = track(make_finished(), make_tracker("mlflow", address="http://127.0.0.1:9"))
    settings.OUTBOUND_ALLOW = []
    record()
    send_runs()
    run.refresh_from_db()
    assert (run.state, run.attempts) == ("failed", 1)


@contextmanager
def repeating_server() -> Iterator[str]:
    """Yield the URL of a server that answers with an error and the header `Authorization` of the request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = self.headers["Authorization"]
            body = f"{'x' * 240} {given} {SECRET} {given} {given}".encode()
            self.send_response(400)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("secret", [SECRET, f"user:{SECRET}"], ids=["token", "basic"])
def test_an_error_of_mlflow_shows_no_credential(secret: str):
    with repeating_server() as address:
        run = track(make_finished(), make_tracker("mlflow", address=address, secret=secret))
        record()
        send_runs()
    run.refresh_from_db()
    assert (run.state, "400" in run.error) == ("failed", True)
    assert "token" not in run.error
    assert base64.b64encode(secret.encode()).decode()[:8] not in run.error


def test_wandb_runs_are_sent_only_to_servers_that_the_operator_allows(settings):
    settings.WANDB_SERVERS = ["https://api.wandb.ai", "http://127.0.0.1:9"]
    run = track(make_finished(), make_tracker("wandb", address="http://127.0.0.1:9/", secret=SECRET))
    settings.WANDB_SERVERS = ["https://api.wandb.ai"]
    record()
    send_runs()
    run.refresh_from_db()
    assert (run.state, run.attempts) == ("failed", 1)
    assert "GYMWEB_WANDB_SERVERS" in run.error


def test_a_changed_secret_key_ends_the_run_with_a_remedy(settings):
    run = track(make_finished(), make_tracker("mlflow", address="http://127.0.0.1:9", secret=SECRET))
    record()
    settings.SECRET_KEY = "another"
    send_runs()
    run.refresh_from_db()
    assert run.state == "failed"
    assert "GYMWEB_SECRET_KEY" in run.error


def test_a_missing_package_is_named_with_its_command(settings):
    settings.TRACKING_PYTHON = ""
    run = track(make_finished(), make_tracker("wandb"))
    record()
    send_runs()
    run.refresh_from_db()
    assert run.state == "failed"
    assert f"{sys.executable} -m pip install wandb" in run.error


@pytest.mark.parametrize("address", ["", "https://wandb.example.com"], ids=["files", "server"])
@pytest.mark.parametrize("seconds", [0.0, 30.0], ids=["too-slow", "crash"])
def test_a_process_that_fails_names_what_to_check(settings, address: str, seconds: float):
    settings.TRACKING_PYTHON = shutil.which("false")
    with pytest.raises(TrackerFailed) as failed:
        run_writer("wandb_writer", {"address": address, "secret": SECRET}, seconds=seconds)
    assert not failed.value.is_final
    assert ("network" if address else "disk space") in str(failed.value)


def test_a_stopped_run_continues_when_it_is_sent_again():
    collection = make_running()
    run = track(collection, make_tracker("tensorboard"))
    stop_run(run=run)
    add_rollouts(collection, "step-100")
    record()
    assert steps(run) == []
    with pytest.raises(RunNotActive):
        stop_run(run=run)
    resend_run(run=run)
    record()
    assert steps(run) == [("", 6)]
    with pytest.raises(RunNotActive):
        resend_run(run=run)


def test_a_run_with_samples_is_not_sent_again_without_the_traces():
    run = track(make_running(), make_tracker("tensorboard"), samples=3)
    stop_run(run=run)
    Collection.objects.update(traces_deleted_at=timezone.now())
    with pytest.raises(RunNotActive):
        resend_run(run=TrackedRun.objects.get())
    TrackedRun.objects.update(samples=0)
    resend_run(run=TrackedRun.objects.get())


def test_the_last_batch_has_the_samples_and_others_have_only_unsent_points(monkeypatch):
    monkeypatch.setattr("apps.tracking.run_delivery.MAX_POINTS", 2)
    run = track(make_finished(), make_tracker("mlflow", address="http://127.0.0.1:9"), samples=3)
    record()
    run.refresh_from_db()
    first = make_batch(run, rewrites=False)
    assert ([point.number for point in first.points], first.samples, first.state) == ([0, 1], None, "")
    run.sent = 2
    last = make_batch(run, rewrites=False)
    assert last.samples is not None
    assert ([point.number for point in last.points], len(last.samples.rows), last.state) == ([2], 3, "completed")
    whole = make_batch(run, rewrites=True)
    assert [point.number for point in whole.points] == [0, 1, 2]


def test_samples_leave_out_flagged_rollouts_and_mask_credentials():
    collection = make_finished()
    key = "sk-proj-" + "a1B2c3D4" * 6
    flagged = Rollout.objects.order_by("pk")[0]
    Rollout.objects.filter(pk=flagged.pk).update(flagged=True)
    make_rollout(collection, repeat=9, trace=make_trace(f"The key is {key}"))
    table = sample_rollouts(collection, 200)
    assert flagged.pk not in [row[0] for row in table.rows]
    assert len(table.rows) == 12
    assert "The key is" in str(table.rows)
    assert key not in str(table.rows)
    assert [row[0] for row in sample_rollouts(collection, 3).rows] == [row[0] for row in table.rows[::4]]


def test_a_credential_is_stored_encrypted_and_in_no_log():
    tracker = make_tracker("mlflow", address="http://127.0.0.1:9", secret=SECRET)
    assert SECRET not in tracker.secret_encrypted
    assert decrypt_secret(tracker.secret_encrypted) == SECRET
    assert SECRET not in str(list(AuditEntry.objects.values()))
    with pytest.raises(ValidationError) as refused:
        tracker.address = "http://127.0.0.1:10"
        save_tracker(tracker=tracker, secret=None)
    assert "secret" in refused.value.message_dict
    tracker.refresh_from_db()
    assert decrypt_secret(save_tracker(tracker=tracker, secret=None).secret_encrypted) == SECRET
    assert not save_tracker(tracker=tracker, secret="").has_secret


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"kind": "mlflow"}, "address"),
        ({"kind": "mlflow", "address": "http://10.0.0.1:5000"}, "address"),
        ({"kind": "mlflow", "address": "http://user:word@127.0.0.1"}, "address"),
        ({"kind": "tensorboard", "address": "http://127.0.0.1:9"}, "address"),
        ({"kind": "trackio", "secret": SECRET}, "secret"),
        ({"kind": "wandb", "address": "https://api.wandb.ai"}, "address"),
        ({"kind": "wandb", "address": "https://wandb.example.com", "secret": SECRET}, "address"),
        ({"kind": "wandb", "address": "http://127.0.0.1:9", "secret": SECRET}, "address"),
        ({"kind": "wandb", "address": "https://api.wandb.ai/x", "secret": SECRET}, "address"),
        ({"kind": "unknown"}, "kind"),
    ],
    ids=[
        "no-url",
        "private",
        "password-in-url",
        "tensorboard-url",
        "trackio-secret",
        "wandb-without-key",
        "other-wandb",
        "private-wandb",
        "path-at-wandb",
        "kind",
    ],
)
def test_an_impossible_tracker_names_the_field(fields: dict[str, str], field: str):
    given = dict(fields)
    with pytest.raises(ValidationError) as refused:
        make_tracker(given.pop("kind"), **given)  # type: ignore[arg-type]
    assert field in refused.value.message_dict
    assert not Tracker.objects.exists()


def test_the_page_links_a_collection_and_offers_its_actions():
    client, collection = Client(), make_finished()
    client.force_login(make_user("engineer"))
    created = client.post("/settings/trackers/new/", {"name": "Files", "kind": "tensorboard", "project": "gymweb"})
    assert created.status_code == 302
    page = f"/collections/{collection.pk}/tracking/"
    linked = client.post(page, {"tracker": Tracker.objects.get().pk, "samples": 5})
    assert linked.status_code == 302
    run = TrackedRun.objects.get()
    assert (run.samples, run.name, run.project) == (5, collection.label, "gymweb")
    for action, state in (("stop", "stopped"), ("resend", "active")):
        client.post(f"/tracked-runs/{run.pk}/{action}/")
        run.refresh_from_db()
        assert run.state == state
    assert "Files" in client.get(page).text
    assert "Files" in client.get(f"/collections/{collection.pk}/").text
    client.post(f"/tracked-runs/{run.pk}/delete/")
    assert not TrackedRun.objects.exists()


def test_a_viewer_sees_runs_but_no_credential_and_changes_nothing():
    tracker = make_tracker("mlflow", address="http://127.0.0.1:9", secret=SECRET)
    collection = make_finished()
    run = track(collection, tracker)
    client = Client()
    client.force_login(make_user("viewer"))
    for address in ("/settings/trackers/", f"/collections/{collection.pk}/tracking/"):
        assert SECRET not in client.get(address).text
    assert client.post(f"/collections/{collection.pk}/tracking/", {"tracker": tracker.pk}).status_code == 403
    assert client.post(f"/tracked-runs/{run.pk}/delete/").status_code == 403
    assert client.get(f"/settings/trackers/{tracker.pk}/edit/").status_code == 403
    client.force_login(make_user("engineer"))
    assert SECRET not in client.get(f"/settings/trackers/{tracker.pk}/edit/").text


def test_deleting_a_collection_or_a_tracker_deletes_its_runs():
    collection = make_finished()
    run = track(collection, make_tracker("tensorboard"))
    record()
    delete_run(run=run)
    run = track(collection, make_tracker("tensorboard"))
    record()
    folder, other = run_folder(run), run_folder(track(collection, make_tracker("tensorboard")))
    foreign = folder.with_name("2026-11-28T03-00-00.000000Z")
    for made in (folder, other, foreign):
        made.mkdir(parents=True)
    run.tracker.delete()
    sweep_run_folders()
    assert TrackedRun.objects.count() == 1
    assert [made.exists() for made in (folder, other, foreign)] == [False, True, True]


def test_an_unexpected_error_of_one_run_does_not_stop_the_others(monkeypatch):
    runs = [track(make_finished(), make_tracker("mlflow", address="http://127.0.0.1:9")) for _ in range(2)]
    record()

    def make(run: TrackedRun, *, rewrites: bool) -> RunBatch:
        if run.pk == runs[0].pk:
            raise ZeroDivisionError("broken")
        return make_batch(run, rewrites=rewrites)

    monkeypatch.setattr(run_delivery, "make_batch", make)
    send_runs()
    first, second = (TrackedRun.objects.get(pk=run.pk) for run in runs)
    assert ("broken" in first.error, "broken" in second.error, bool(second.error)) == (True, False, True)
