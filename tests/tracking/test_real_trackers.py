"""Runs in a real MLflow server, and in files read back with the packages of W&B, Trackio and TensorBoard.

Without the environment of `make test-tracking` every test here is skipped by name.
"""

import json
import subprocess
from urllib.request import urlopen

import pytest

from apps.rollouts.metrics.cached_figures import fresh_figures
from apps.rollouts.metrics.model_versions import track_versions
from apps.tracking import run_delivery
from apps.tracking.models import TrackedRun
from apps.tracking.point_values import collection_values, version_values
from apps.tracking.run_delivery import send_runs
from apps.tracking.run_links import delete_run, resend_run
from tests.alerts.receiver import find_port
from tests.tracking.read_back import TENSORBOARD, TRACKIO, WANDB, mlflow
from tests.tracking.site_of_trackers import (
    IS_BUILT,
    PYTHON,
    add_rollouts,
    ask,
    finish,
    local_path,
    make_due,
    make_finished,
    make_running,
    make_tracker,
    mlflow_server,
    track,
    work,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not IS_BUILT, reason="SKIPPED by name: trackers: make test-tracking"),
]


def ours(collection):
    """The metrics of the collection, and those of its model versions by their numbers."""
    versions = track_versions(policy_model=collection.policy_model, collection=collection)
    return collection_values(fresh_figures(collection).metrics), {
        int(one.version.removeprefix("step-")): version_values(one) for one in versions
    }


def history(address, run, key):
    found = mlflow(address, f"metrics/get-history?run_id={run.run_id}&metric_key={key}&max_results=1000")
    return [(one["step"], one["value"]) for one in found.get("metrics", [])]


def test_mlflow_has_the_metrics_the_settings_and_the_samples_of_a_stored_collection(tmp_path):
    collection = make_finished()
    with mlflow_server(tmp_path) as address:
        run = track(collection, make_tracker("mlflow", address=address, project="training"), samples=5)
        work()
        run.refresh_from_db()
        assert (run.state, run.error, run.sent) == ("finished", "", 3)
        found = mlflow(address, f"runs/get?run_id={run.run_id}")["run"]
        whole, by_version = ours(collection)
        last = {one["key"]: one["value"] for one in found["data"]["metrics"]}
        assert {name: last[name] for name in whole} == whole
        assert whole["mean_reward"] == pytest.approx(0.55)
        assert history(address, run, "mean_reward") == [(12, whole["mean_reward"])]
        assert history(address, run, "by_version/mean_reward") == [
            (number, values["by_version/mean_reward"]) for number, values in by_version.items()
        ]
        params = {one["key"]: one["value"] for one in found["data"]["params"]}
        assert (params["model_version.100"], params["repeats"]) == ("step-100", "2")
        tags = {one["key"]: one["value"] for one in found["data"]["tags"]}
        assert tags["gymweb.collection"] == f"https://gym.example.org/collections/{collection.pk}/"
        assert (found["info"]["status"], found["info"]["run_name"]) == ("FINISHED", collection.label)
        with urlopen(f"{address}/get-artifact?path=samples.json&run_uuid={run.run_id}") as reply:
            table = json.load(reply)
        assert len(table["data"]) == 5
        row = dict(zip(table["columns"], table["data"][0], strict=True))
        assert (row["answer"], row["prompt"], row["reward"]) == ("4", "What is 2 + 2?", 0.0)
        assert row["link"].startswith("https://gym.example.org/rollouts/")
        with urlopen(run.url) as page:
            assert page.status == 200


def test_a_batch_that_is_sent_again_after_a_crash_doubles_no_point(tmp_path, monkeypatch):
    collection = make_running()
    add_rollouts(collection, "step-100")
    with mlflow_server(tmp_path) as address:
        run = track(collection, make_tracker("mlflow", address=address), samples=2)
        with monkeypatch.context() as patch:
            # The worker dies after the server has stored the points.
            patch.setattr(run_delivery, "_store_success", lambda *_: None)
            work()
            run.refresh_from_db()
            assert (run.sent, run.recorded) == (0, 1)
        work()
        add_rollouts(collection, "step-200")
        work()
        finish(collection)
        work()
        resend_run(run=run)
        work()
        run.refresh_from_db()
        assert (run.state, run.error) == ("finished", "")
        (experiment,) = mlflow(address, "experiments/search", filter="name = 'gymweb'", max_results=5)["experiments"]
        runs = mlflow(address, "runs/search", experiment_ids=[experiment["experiment_id"]])["runs"]
        assert [one["info"]["run_id"] for one in runs] == [run.run_id]
        assert [step for step, _ in history(address, run, "mean_reward")] == [6, 12]
        assert [step for step, _ in history(address, run, "by_version/mean_reward")] == [100, 200]


def test_a_server_that_is_down_delays_only_the_run_and_gets_all_points_later(tmp_path):
    collection, port = make_running(), find_port()
    run = track(collection, make_tracker("mlflow", address=f"http://127.0.0.1:{port}"), samples=0)
    for version in ("step-100", "step-200"):
        add_rollouts(collection, version)
        work()
    run.refresh_from_db()
    assert (run.state, run.sent) == ("active", 0)
    assert run.recorded >= 2
    assert run.error
    finish(collection)
    with mlflow_server(tmp_path, port) as address:
        work()
        run.refresh_from_db()
        assert (run.state, run.error) == ("finished", "")
        assert [step for step, _ in history(address, run, "mean_reward")] == [6, 12]


def test_tensorboard_reads_every_point_once_while_the_file_grows():
    collection = make_running()
    add_rollouts(collection, "step-100")
    run = track(collection, make_tracker("tensorboard"), samples=4)
    work()
    run.refresh_from_db()
    folder = local_path(run)
    first = json.loads(ask(TENSORBOARD, folder))
    assert [step for step, _ in first["mean_reward"]] == [6]
    (file,) = folder.iterdir()
    beginning = file.read_bytes()
    add_rollouts(collection, "step-200")
    finish(collection)
    work()
    # A running TensorBoard continues at its position in the file.
    assert file.read_bytes().startswith(beginning)
    found = json.loads(ask(TENSORBOARD, folder))
    whole, by_version = ours(collection)
    assert found["mean_reward"][-1] == [12, whole["mean_reward"]]
    assert {name: found[name][-1][1] for name in whole} == whole
    assert found["by_version/mean_reward"] == [
        [number, values["by_version/mean_reward"]] for number, values in by_version.items()
    ]
    assert [text for _, text in found["by_version/model_version"]] == [["step-100"], ["step-200"]]
    assert "https://gym.example.org/rollouts/" in found["samples"][0][1][0]
    assert "_hparams_/session_start_info" in found
    delete_run(run=run)
    assert not file.exists()


def test_wandb_offline_files_have_every_point_once():
    collection = make_running()
    add_rollouts(collection, "step-100")
    run = track(collection, make_tracker("wandb", project="training"), samples=4)
    work()
    add_rollouts(collection, "step-200")
    finish(collection)
    work()
    run.refresh_from_db()
    assert (run.state, run.error) == ("finished", "")
    rows, config, summary = json.loads(ask(WANDB, local_path(run)))
    whole, by_version = ours(collection)
    of_collection = [row for row in rows if "mean_reward" in row]
    assert [row["rollouts_finished"] for row in of_collection] == [6, 12]
    assert {name: of_collection[-1][name] for name in whole} == whole
    assert {
        row["model_version_number"]: {name: row[name] for name in by_version[row["model_version_number"]]}
        for row in rows
        if "model_version_number" in row
    } == by_version
    assert config["gymweb_collection"] == f"https://gym.example.org/collections/{collection.pk}/"
    assert (config["name"], config["repeats"]) == (collection.label, 2)
    assert summary["samples"]["nrows"] == 4
    synced = subprocess.run(
        [PYTHON, "-m", "wandb", "sync", "--dry-run", local_path(run)], check=True, capture_output=True, text=True
    )
    assert f"run-{run.key.hex}.wandb" in synced.stderr


def test_trackio_has_every_point_once_after_a_crash(monkeypatch):
    collection = make_finished()
    run = track(collection, make_tracker("trackio", project="training"), samples=4)
    with monkeypatch.context() as patch:
        patch.setattr(run_delivery, "_store_success", lambda *_: None)
        work()
    work()
    run.refresh_from_db()
    assert (run.state, run.error) == ("finished", "")
    logs, config = json.loads(ask(TRACKIO, local_path(run), "training"))
    whole, by_version = ours(collection)
    of_collection = [row for row in logs if "mean_reward" in row]
    assert [{name: row[name] for name in whole} for row in of_collection] == [whole]
    assert {row["step"]: row["by_version/mean_reward"] for row in logs if "model_version" in row} == {
        number: values["by_version/mean_reward"] for number, values in by_version.items()
    }
    (table,) = [row["samples"] for row in logs if "samples" in row]
    assert len(table["_value"]) == 4
    assert config["repeats"] == 2


def test_a_killed_worker_leaves_its_run_to_the_next_one(tmp_path):
    collection = make_finished()
    run = track(collection, make_tracker("tensorboard"), samples=0)
    make_due()
    TrackedRun.objects.update(attempts=1)
    assert not send_runs()
    work()
    run.refresh_from_db()
    assert (run.state, run.error, run.attempts) == ("finished", "", 2)
