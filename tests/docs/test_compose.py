"""compose.yaml and Dockerfile say what commands, settings and addresses really are."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands, load_command_class
from django.urls import is_valid_path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "compose.yaml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "gymweb"}
DOCKERFILE = (ROOT / "Dockerfile").read_text()
KEY = "0123456789abcdefghijklmnopqrstuvwxyz-0123456789-0123456789"
VARIABLE = re.compile(r"\$\{(\w+)(?::([?-])([^}]*))?\}")
OPTIONAL_SECRETS = {"GYMWEB_OIDC_CLIENT_SECRET"}
GIVEN = {"GYMWEB_SECRET_KEY": KEY, "POSTGRES_PASSWORD": "pw1", "REDIS_PASSWORD": "pw2"}


def substitute(text: str) -> str:
    """What Compose puts into a value, with nothing given but the secrets."""

    def replace(found: re.Match[str]) -> str:
        name, sign, rest = found.groups()
        return GIVEN.get(name) or (rest if sign == "-" else "")

    return VARIABLE.sub(replace, text)


TIMES = ("interval", "timeout", "start_period", "retries")
WEB_MANIFEST = ROOT / "deploy" / "kubernetes" / "web.yaml"


@pytest.fixture
def healthcheck_of_the_image() -> dict[str, Any]:
    """The HEALTHCHECK of the Dockerfile, as Compose writes one."""
    [(options, test)] = re.findall(r"^HEALTHCHECK (.*) \\\n    CMD (.*)$", DOCKERFILE, re.MULTILINE)
    given = {name.replace("-", "_"): value for name, value in re.findall(r"--([\w-]+)=(\w+)", options)}
    return {"test": json.loads(test), **given, "retries": int(given["retries"])}


def test_the_services_match_the_design():
    assert set(SERVICES) == {"migrate", "web", "worker", "postgres", "redis"}
    assert set(OURS) == {"migrate", "web", "worker"}
    assert {key for service in SERVICES.values() for key in service} <= {
        *("image", "build", "init", "restart", "read_only", "tmpfs", "cap_drop", "security_opt", "stop_grace_period"),
        *("volumes", "environment", "command", "depends_on", "ports", "healthcheck", "shm_size"),
    }
    mounted = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert mounted == set(COMPOSE["volumes"])


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_command_is_one_of_ours_with_options_that_it_has(name):
    python, manage, command, *arguments = OURS[name]["command"]
    assert (python, manage, command in get_commands()) == ("python", "manage.py", True)
    parser = load_command_class(get_commands()[command], command).create_parser("manage.py", command)
    assert parser.parse_args(arguments)
    if name == "web":
        assert parser.parse_args(arguments).no_worker is True
    assert f'"{python}", "{manage}"' in DOCKERFILE.splitlines()[-1]


def test_secrets_come_from_outside_and_have_no_default():
    found = [match.groups() for match in VARIABLE.finditer(TEXT)]
    required = {name for name, sign, _ in found if sign == "?"}
    assert required == set(GIVEN)
    assert {name for name, sign, _ in found if name in GIVEN and sign != "?"} == set()
    secret = r"(?i)(password|secret|requirepass)"
    for service in SERVICES.values():
        for name, value in service["environment"].items():
            if name in OPTIONAL_SECRETS:
                assert value == f"${{{name}:-}}"
            elif re.search(secret, name) or "://" in str(value):
                assert VARIABLE.search(value)[2] == "?", name


def test_every_setting_passed_is_one_that_is_read():
    described = (ROOT / "docs" / "operate" / "settings.md").read_text()
    named = {name for service in OURS.values() for name in service["environment"]}
    named |= {name for name, *_ in (match.groups() for match in VARIABLE.finditer(TEXT)) if name.startswith("GYMWEB_")}
    assert [name for name in sorted(named) if f"| `{name}` |" not in described] == []
    assert len(named) >= 9


def test_the_environment_variables_are_known_and_pass_the_checks(tmp_path):
    environment = {name: substitute(value) for name, value in OURS["web"]["environment"].items()}
    environment["GYMWEB_SECURE"] = "1"
    code = """
import django; django.setup()
from django.conf import settings as s
host = s.CHANNEL_LAYERS["default"]["CONFIG"]["hosts"][0]["address"]
database = s.DATABASES["default"]
print([database[k] for k in ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT")], host)
print(s.OIDC.issuer, s.OIDC.scopes, s.OIDC.session_hours, s.SEND_SPANS, s.SEND_METRICS, s.METRIC_SECONDS)
print(s.ALLOWED_HOSTS, s.CSRF_TRUSTED_ORIGINS, s.SECURE, s.OUTBOUND_ALLOW, s.WORKER_SEATS, len(s.SECRET_KEY) == 58)
from django.core.checks import run_checks
print([one for one in run_checks(include_deployment_checks=True) if not one.is_silenced()])
"""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GYMWEB_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**kept, "DJANGO_SETTINGS_MODULE": "gymweb.settings", "GYMWEB_VAR": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "['gymweb.postgresql', 'gymweb', 'gymweb', 'pw1', 'postgres', 5432] redis://:pw2@redis:6379/0",
        " ['openid', 'profile', 'email'] 12 False False 60.0",
        "['localhost', '127.0.0.1'] [] True [] 256 True",
        "[]",
    ], done.stderr


def test_processes_start_when_what_they_need_is_healthy_and_the_tables_are_made():
    servers = {"postgres": {"condition": "service_healthy"}, "redis": {"condition": "service_healthy"}}
    made = {"migrate": {"condition": "service_completed_successfully"}}
    assert SERVICES["web"]["depends_on"] == SERVICES["worker"]["depends_on"] == {**servers, **made}
    assert SERVICES["migrate"]["depends_on"] == {"postgres": servers["postgres"]}
    assert all("test" in SERVICES[name]["healthcheck"] for name in ("web", "postgres", "redis"))


def test_the_health_check_asks_an_address_that_the_web_process_has():
    [host, port, path] = re.findall(r"http://([\d.]+):(\d+)(/\w+)", SERVICES["web"]["healthcheck"]["test"][-1])[0]
    command = SERVICES["web"]["command"]
    assert (path, bool(is_valid_path(path)), command[command.index("--port") + 1]) == ("/healthz", True, port)
    assert host in substitute(OURS["web"]["environment"]["GYMWEB_ALLOWED_HOSTS"]).split(",")
    [published] = SERVICES["web"]["ports"]
    assert substitute(published) == f"127.0.0.1:8000:{port}"


def test_the_dockerfile_compose_and_kubernetes_have_one_health_check(healthcheck_of_the_image):
    check = SERVICES["web"]["healthcheck"]
    assert {"test": check["test"][1:], **{name: check[name] for name in TIMES}} == healthcheck_of_the_image
    assert [SERVICES[name]["healthcheck"] for name in ("migrate", "worker")] == [{"disable": True}] * 2
    [web] = [one for one in yaml.safe_load_all(WEB_MANIFEST.read_text()) if one["kind"] == "Deployment"]
    probe = web["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]
    assert probe["httpGet"]["path"] in check["test"][-1]
    assert [f"{probe[name]}s" for name in ("initialDelaySeconds", "periodSeconds", "timeoutSeconds")] == [
        *(check["start_period"], check["interval"], check["timeout"])
    ]
    assert probe["failureThreshold"] == check["retries"]


def test_a_drain_has_time_before_it_is_killed(settings):
    for service in OURS.values():
        assert int(substitute(service["stop_grace_period"]).removesuffix("s")) >= 2 * settings.WORKER_GRACE_SECONDS


def test_what_the_engine_may_be_told_is_passed_on_from_env_with_the_defaults_that_settings_have(settings):
    for service in OURS.values():
        passed = service["environment"]
        for name in ("WORKER_SEATS", "WORKER_LEASE_SECONDS", "WORKER_GRACE_SECONDS", "BREAKER_FAILURES"):
            assert passed[f"GYMWEB_{name}"] == f"${{GYMWEB_{name}:-{getattr(settings, name):g}}}"


def test_our_processes_have_no_rights_and_write_nowhere_else():
    for service in OURS.values():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["volumes"] == ["var:/var/lib/gymweb"]
    instructions = DOCKERFILE.splitlines()
    users = [line for line in instructions if line.startswith("USER ")]
    assert users == ["USER gymweb"]
    assert instructions.index("USER gymweb") > max(
        number for number, line in enumerate(instructions) if line.startswith(("COPY", "RUN"))
    )
    assert "GYMWEB_VAR=/var/lib/gymweb" in DOCKERFILE


def test_the_image_contains_only_needed_files():
    copied = {
        source
        for line in DOCKERFILE.splitlines()
        if line.startswith("COPY ")
        for source in line.removeprefix("COPY ").split()[:-1]
    }
    assert [name for name in copied if not (ROOT / name).exists()] == []
    let_in = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    assert let_in == copied
    assert (ROOT / ".dockerignore").read_text().splitlines()[0] == "*"
    assert {"apps", "gymweb", "manage.py", "pyproject.toml", "requirements.txt", "static", "templates"} == copied


@pytest.mark.slow
def test_the_static_files_of_the_image_can_be_collected_and_are_then_served_by_name(tmp_path):
    for name in ("apps", "gymweb", "static", "templates", "manage.py", "pyproject.toml"):
        subprocess.run(["cp", "-r", str(ROOT / name), str(tmp_path)], check=True)
    environment = {**os.environ, "GYMWEB_VAR": str(tmp_path / "var"), "DJANGO_SETTINGS_MODULE": "gymweb.settings"}
    collected = subprocess.run(
        [sys.executable, "manage.py", "collectstatic", "--no-input"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert collected.returncode == 0, collected.stderr
    code = (
        "import django; django.setup(); from django.templatetags.static import static; print(static('css/gymweb.css'))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert re.fullmatch(r"/static/css/gymweb\.[0-9a-f]{12}\.css", shown)
    assert (tmp_path / "static-root" / shown.removeprefix("/static/")).exists()
