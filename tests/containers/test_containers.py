"""Build the Dockerfile and run compose.yaml in Podman: the image, a collection, and an upgrade from the version before.

The tests run in order on the same containers.
"""

import json
import os
import re
import tarfile
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.rollouts.plans.sample_data import make_arithmetic_rows
from tests.bill_of_materials import read_packages, write_bill
from tests.containers.images import find_version_before
from tests.containers.podman import Podman
from tests.containers.site import Site
from tests.deadlines import wait_until

# The first test builds the images.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

READ_ONLY = ["--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--network", "none"]
SECRET_FILE = re.compile(r"(^|/)(\.git|\.env|\.netrc|\.pypirc|\.npmrc|\.ssh|secret_key|id_\w+|[^/]+\.sqlite3)(/|$)")
PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
IN_FLIGHT = 200
"""Repeats of a collection that does not finish before its workers stop."""
SAVED = "SELECT id, status, reward, attempt, finished_at FROM rollouts_rollout WHERE collection_id = {} ORDER BY id"


def read_layers(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each file in each layer above the base, those that later layers hide included."""
    with tarfile.open(archive) as saved:
        [manifest] = json.load(saved.extractfile("manifest.json"))
        yield "config", saved.extractfile(manifest["Config"]).read()
        for name in manifest["Layers"][1:]:
            with tarfile.open(fileobj=saved.extractfile(name)) as layer:
                for member in layer:
                    yield member.name, layer.extractfile(member).read() if member.isfile() else b""


def find_leaks(archive: Path, unwanted: list[bytes]) -> list[str]:
    """Return the files with secrets. Packages may bring test keys of their own."""
    found = []
    for name, content in read_layers(archive):
        is_configuration = name.endswith("pip.conf") and content
        is_key = "-packages/" not in name and PRIVATE_KEY.search(content)
        if is_configuration or is_key or SECRET_FILE.search(name) or any(word in content for word in unwanted):
            found.append(name)
    return found


def test_no_layer_contains_secrets_or_the_configuration_of_the_build(podman: Podman, image: str, tmp_path: Path):
    archive = tmp_path / "image.tar"
    podman.run("save", "--format", "docker-archive", "--output", archive, image)
    assert find_leaks(archive, [b"secret-of-the-build"]) == []
    [inspected] = json.loads(podman.run("image", "inspect", image).stdout)
    assert {entry.partition("=")[0] for entry in inspected["Config"]["Env"]} == {
        "PATH",
        "PYTHONUNBUFFERED",
        "GYMWEB_VAR",
    }


def test_the_scan_finds_files_that_a_later_layer_hides(podman: Podman, base: str, tmp_path: Path):
    (tmp_path / "containerfile").write_text(f"FROM {base}\nRUN echo SECRET=1 > /srv/.env\nRUN rm /srv/.env\n")
    podman.run("build", "--network", "none", "--tag", "localhost/gymweb:leaking", "--file", tmp_path / "containerfile")
    archive = tmp_path / "leaking.tar"
    podman.run("save", "--format", "docker-archive", "--output", archive, "localhost/gymweb:leaking")
    assert "srv/.env" in find_leaks(archive, [])


def test_the_image_has_the_packages_of_the_bill_of_materials(podman: Podman, base: str, image: str, tmp_path: Path):
    listed = [podman.run("run", "--rm", *READ_ONLY, name, "pip", "list", "--format", "json") for name in (base, image)]
    before, after = ({(one["name"], one["version"]) for one in json.loads(done.stdout)} for done in listed)
    installed = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in after - before}
    # Redis's client needs it before Python 3.11.3.
    installed.pop("async-timeout", None)
    assert installed == read_packages(write_bill(tmp_path))


def test_a_process_is_no_root_and_writes_only_to_its_volume_and_tmp(podman: Podman, image: str):
    code = (
        "import os; print(os.getuid(), os.getgid() != 0)\n"
        "for path in ('/app', '/app/apps', '/etc', '/var/tmp', '/var/lib/gymweb', '/tmp'):\n"
        "    print(path, os.access(path, os.W_OK))"
    )
    said = podman.run("run", "--rm", *READ_ONLY, "--volume", "/var/lib/gymweb", image, "python", "-c", code).stdout
    assert said.splitlines()[0] == "10001 True"
    assert [line.split()[0] for line in said.splitlines()[1:] if line.endswith("True")] == ["/var/lib/gymweb", "/tmp"]


def test_a_volume_of_another_user_is_refused_with_its_remedy(podman: Podman, image: str, volume: Path):
    mount = ["--volume", f"{volume}:/var/lib/gymweb"]
    refused = podman.run("run", "--rm", *READ_ONLY, *mount, image, check=False)
    assert refused.returncode == 1
    assert "chown 10001 /var/lib/gymweb" in refused.stderr
    assert "Traceback" not in refused.stderr
    below = ["--env", "GYMWEB_VAR=/var/lib/gymweb/data"]
    refused_below = podman.run("run", "--rm", *READ_ONLY, *mount, *below, image, check=False)
    assert (refused_below.returncode, "owner of /var/lib/gymweb," in refused_below.stderr) == (1, True)
    os.chown(volume, 10001, 10001)
    migrated = podman.run(
        "run", "--rm", *READ_ONLY, *mount, image, "python", "manage.py", "migrate", "--verbosity", "0"
    )
    assert (migrated.stderr, (volume / "gymweb.sqlite3").stat().st_uid) == ("", 10001)
    assert volume.stat().st_mode & 0o077 == 0


def test_a_single_container_collects_on_sqlite_without_a_network(podman: Podman, image: str):
    words = ["--rm", *READ_ONLY, "--volume", "/var/lib/gymweb", image, "python", "manage.py", "demo", "--no-serve"]
    summary = json.loads(podman.run("run", *words).stdout.splitlines()[-1])
    assert (summary["completed"], summary["failed"]) == (summary["rollouts"], 0)


@pytest.fixture(scope="module")
def running(site: Site, image: str, image_before: str) -> Site:
    """The version before, with two workers and a dataset."""
    site.use(image_before)
    site.start(workers=2)
    site.manage("create_user", "ada", "--role", "admin", "--link")
    site.key = site.manage("create_api_key", "ada", "--name", "walk", "--scope", "admin").splitlines()[-1]
    site.call(
        "/api/v1/policy-models/", {"slug": "scripted", "name": "Scripted", "provider": "scripted", "mistake_rate": 0}
    )
    site.call("/api/v1/datasets/", {"slug": "sums", "name": "Sums", "environment": "calculator"})
    # A worker reads the file: both processes see the same volume.
    uploaded = site.call("/api/v1/datasets/sums/uploads/?wait=true", make_arithmetic_rows(), "application/x-ndjson")
    assert uploaded["state"] == "ready", uploaded
    return site


def start_collection(site: Site, repeats: int) -> int:
    plan = {"dataset": "sums", "agent": "default", "policy_model": "scripted", "repeats": repeats}
    return site.call("/api/v1/collections/", plan)["id"]


def test_every_service_of_compose_runs_and_is_healthy(running: Site):
    assert [running.is_healthy(name) for name in ("web", "postgres", "redis")] == [True] * 3
    states = {name: [one["State"] for one in running.inspect(name)] for name in ("migrate", "web", "worker")}
    assert [(state["Running"], state["ExitCode"]) for state in states["migrate"]] == [(False, 0)]
    assert [state["Status"] for state in states["web"] + states["worker"]] == ["running"] * 3
    assert running.call("/readyz")["ready"] is True


def test_the_processes_have_no_rights(running: Site):
    for container in [*running.containers("web"), *running.containers("worker")]:
        tried = running.podman.run("exec", container, "sh", "-c", "cat /proc/1/status; touch /app/file", check=False)
        status = dict(line.split(":\t", 1) for line in tried.stdout.splitlines())
        assert {status[name] for name in ("CapEff", "CapPrm", "CapBnd")} == {"0" * 16}
        assert (status["Uid"].split(), status["NoNewPrivs"]) == (["10001"] * 4, "1")
        assert (tried.returncode, "Read-only" in tried.stderr) == (1, True)


def test_two_workers_run_a_collection(running: Site):
    collection = start_collection(running, repeats=20)
    running.wait_ended(collection, 800)
    found = running.call(f"/api/v1/collections/{collection}/")
    assert (found["completed"], found["failed"], found["mean_reward"]) == (800, 0, 1.0)
    # Workers store their counters with their heartbeats.
    busy = "(meters->'phases'->'rollout'->>'sum')::float > 0"
    wait_until(lambda: running.count_workers(busy) == 2, what=running.describe)


def test_an_export_of_a_worker_is_downloaded_from_the_web_process(running: Site):
    ordered = running.call("/api/v1/exports/", {"format": "trl_sft", "collection": 1})
    address = f"/api/v1/exports/{ordered['id']}/"
    wait_until(lambda: running.call(address)["state"] == "ready", what=running.describe)
    rows = running.call(address)["rows"]
    assert rows > 0
    assert len(running.call(f"{address}download/").splitlines()) == rows


def test_an_outage_of_the_database_leaves_the_web_process_healthy(running: Site):
    running.compose("stop", "postgres")
    assert not running.is_healthy("postgres")
    assert running.is_healthy("web")
    with pytest.raises(urllib.error.HTTPError) as refused:
        running.call("/readyz")
    assert (refused.value.code, "database" in json.load(refused.value)["missing"]) == (503, True)
    running.compose("start", "postgres")
    running.wait_healthy("postgres")


def test_an_upgrade_keeps_rollouts_and_finishes_those_in_flight(running: Site, image: str, image_before: str):
    before = running.query(SAVED.format(1))
    migrations = set(running.query("SELECT app, name FROM django_migrations"))
    interrupted = start_collection(running, repeats=IN_FLIGHT)
    running.wait_ended(interrupted, 1)
    running.stop()
    running.use(image)
    running.start(workers=2)
    assert running.query(SAVED.format(1)) == before
    assert (set(running.query("SELECT app, name FROM django_migrations")) > migrations) is (image != image_before)
    assert running.call("/readyz")["ready"] is True
    ended_before = (
        f"SELECT count(*) FROM rollouts_rollout WHERE finished_at < '{running.started_at}' AND collection_id = "
    )
    assert 0 < int(running.query(f"{ended_before}{interrupted}")[0]) < 40 * IN_FLIGHT
    running.wait_ended(interrupted, 40 * IN_FLIGHT)
    found = running.call(f"/api/v1/collections/{interrupted}/")
    assert (found["completed"], found["failed"]) == (40 * IN_FLIGHT, 0)


def test_the_clone_has_the_version_before():
    if not find_version_before():
        pytest.skip(
            "the upgrade began with this version, since the clone has no older one: git fetch --unshallow --tags"
        )


def test_a_backup_is_written_to_a_folder_of_the_host(running: Site, volume: Path):
    os.chown(volume, 10001, 10001)
    options = ["run", "--rm", "-T", "--no-deps", "--volume", f"{volume}:/backups", "web", "python", "manage.py"]
    running.compose(*options, "backup", "/backups")
    running.compose(*options, "verify_backup", "/backups")
    [manifest] = volume.glob("*/manifest.json")
    assert json.loads(manifest.read_text())["files"]


def test_workers_drain_when_they_are_stopped(running: Site):
    running.stop_workers()
    ended = [one["State"] for one in running.inspect("worker")]
    assert [(state["Running"], state["ExitCode"]) for state in ended] == [(False, 0)] * 2
    assert running.count_workers("state = 'stopped'") == 2


def test_no_log_contains_a_secret(running: Site):
    containers = running.podman.ids("ps", "--all", "--quiet")
    logged = [running.podman.run("logs", container) for container in containers]
    said = "".join(done.stdout + done.stderr for done in logged)
    assert len(containers) >= 5
    assert [name for name, secret in running.secrets.items() if secret in said] == []
    assert running.key not in said
