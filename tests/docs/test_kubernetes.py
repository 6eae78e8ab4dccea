"""The manifests in deploy/kubernetes/ match the Kubernetes schemas, and the commands, settings and paths of GymWeb."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.core.management import get_commands, load_command_class
from django.db import connection
from django.urls import is_valid_path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
EXAMPLE = "keda.yaml"
MANIFESTS = sorted(path.name for path in FOLDER.glob("*.yaml") if path.name != EXAMPLE)


def read(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


RESOURCES = {(one["kind"], one["metadata"]["name"]): one for name in MANIFESTS for one in read(name)}
PODS = {key: one["spec"]["template"]["spec"] for key, one in RESOURCES.items() if key[0] in {"Deployment", "Job"}}
CONTAINERS = {f"{name}/{one['name']}": one for (_, name), pod in PODS.items() for one in pod["containers"]}
by_container = pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)


@pytest.mark.parametrize("name", MANIFESTS)
def test_every_manifest_is_valid(name: str) -> None:
    kubernetes = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for resource in read(name):
        assert kubernetes.validate(resource, kubernetes.latest_version(), strict=True)


def test_the_check_refuses_unknown_fields() -> None:
    kubernetes = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    [deployment] = read("worker.yaml")
    deployment["spec"]["replica"] = 2
    with pytest.raises(kubernetes.ValidationError, match="replica"):
        kubernetes.validate(deployment, kubernetes.latest_version(), strict=True)


def test_there_are_web_workers_and_migrations() -> None:
    assert set(PODS) == {("Deployment", "gymweb-web"), ("Deployment", "gymweb-worker"), ("Job", "gymweb-migrate")}


@by_container
def test_every_container_runs_a_command_of_ours_without_rights(container: dict[str, Any]) -> None:
    python, manage, command, *arguments = container["command"]
    assert (python, manage) == ("python", "manage.py")
    parser = load_command_class(get_commands()[command], command).create_parser("manage.py", command)
    assert parser.parse_args(arguments)
    rights = container["securityContext"]
    assert (rights["readOnlyRootFilesystem"], rights["allowPrivilegeEscalation"]) == (True, False)
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert container["envFrom"] == [{"configMapRef": {"name": "gymweb"}}, {"secretRef": {"name": "gymweb"}}]


@pytest.mark.parametrize("pod", PODS.values(), ids=lambda pod: pod["containers"][0]["name"])
def test_every_pod_runs_as_the_user_of_the_image_and_has_its_volumes(pod: dict[str, Any]) -> None:
    dockerfile, ids = (ROOT / "Dockerfile").read_text(), pod["securityContext"]
    assert f"useradd --system --uid {ids['runAsUser']} --gid gymweb " in dockerfile
    assert ids["runAsGroup"] == ids["fsGroup"]
    assert f"groupadd --system --gid {ids['runAsGroup']} gymweb " in dockerfile
    assert pod["securityContext"]["runAsNonRoot"] is True
    volumes = {volume["name"] for volume in pod["volumes"]}
    mounted = [{one["name"] for one in container["volumeMounts"]} for container in pod["containers"]]
    assert mounted == [volumes] * len(mounted)


def test_only_workers_without_the_files_of_the_web_process_run_no_background_jobs() -> None:
    claims = {name: "persistentVolumeClaim" in str(pod["volumes"]) for (_, name), pod in PODS.items()}
    assert claims == {"gymweb-web": True, "gymweb-worker": False, "gymweb-migrate": False}
    assert "--no-background-jobs" in CONTAINERS["gymweb-worker/worker"]["command"]
    assert "--no-background-jobs" not in CONTAINERS["gymweb-web/background"]["command"]


def test_workers_have_time_to_drain() -> None:
    grace = float(RESOURCES["ConfigMap", "gymweb"]["data"]["GYMWEB_WORKER_GRACE_SECONDS"])
    assert grace == settings.WORKER_GRACE_SECONDS
    waits = {kind: pod["terminationGracePeriodSeconds"] for (kind, _), pod in PODS.items() if kind == "Deployment"}
    assert all(seconds >= 2 * grace for seconds in waits.values())


def test_probes_name_pages_and_an_allowed_host() -> None:
    web = CONTAINERS["gymweb-web/web"]
    probes = {name: web[name]["httpGet"] for name in ("readinessProbe", "livenessProbe")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "readinessProbe": "/readyz",
        "livenessProbe": "/healthz",
    }
    allowed = RESOURCES["ConfigMap", "gymweb"]["data"]["GYMWEB_ALLOWED_HOSTS"].split(",")
    for probe in probes.values():
        assert is_valid_path(probe["path"])
        assert [header["value"] in allowed for header in probe["httpHeaders"] if header["name"] == "Host"] == [True]


def test_settings_exist_and_secrets_are_only_in_the_secret() -> None:
    described = (ROOT / "docs" / "operate" / "settings.md").read_text()
    public, secret = RESOURCES["ConfigMap", "gymweb"]["data"], RESOURCES["Secret", "gymweb"]["stringData"]
    assert [name for name in (*public, *secret) if f"| `{name}` |" not in described] == []
    assert set(secret) == {"GYMWEB_SECRET_KEY", "GYMWEB_DATABASE_URL", "GYMWEB_REDIS_URL"}


@pytest.mark.django_db
def test_the_keda_example_says_that_it_is_untested_and_its_query_runs() -> None:
    assert (FOLDER / EXAMPLE).read_text().startswith("# UNTESTED EXAMPLE")
    _, scaled = read(EXAMPLE)
    assert ("Deployment", scaled["spec"]["scaleTargetRef"]["name"]) in RESOURCES
    [trigger] = scaled["spec"]["triggers"]
    with connection.cursor() as cursor:
        cursor.execute(trigger["metadata"]["query"])
        assert cursor.fetchone() == (0,)
