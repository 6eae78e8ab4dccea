"""Commands, units, proxy, metrics and alerts of docs/operate/ match the code."""

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import pytest
import yaml
from django.conf import settings
from django.core.management import get_commands, load_command_class
from prometheus_client import REGISTRY

from apps.accounts.job_declarations import Thread
from apps.api.fleet.prometheus_metrics import COUNTS, expose
from apps.rollouts.engine.worker_counters import Meters
from apps.rollouts.metrics.fleet_gauges import Fleet

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("deploy", "scale", "monitoring", "backup")
TEXT = "\n".join((ROOT / "docs" / "operate" / f"{name}.md").read_text() for name in PAGES)
SETTINGS = (ROOT / "docs" / "operate" / "settings.md").read_text()
SLURM_JOB = (ROOT / "deploy" / "slurm" / "worker.sbatch").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def commands() -> list[list[str]]:
    """Every `manage.py COMMAND …` of the shell blocks and the units, as words."""
    text = "\n".join(blocks("sh") + blocks("ini"))
    return [line.split("#")[0].split() for line in re.findall(r"manage\.py (.+)", text)]


def test_every_command_has_the_options_that_it_is_given():
    given = commands()
    assert {words[0] for words in given} >= {"serve", "rolloutworker", "migrate", "collectstatic", "create_user"}
    for command, *arguments in given:
        parser = load_command_class(get_commands()[command], command).create_parser("manage.py", command)
        assert parser.parse_args(arguments), (command, arguments)


def test_every_shell_block_is_shell():
    assert len(blocks("sh")) >= 8
    for block in blocks("sh"):
        read = subprocess.run(["bash", "-n"], input=block, text=True, capture_output=True, check=False)
        assert (read.returncode, read.stderr) == (0, ""), block


def test_every_setting_that_is_set_exists():
    named = re.findall(r"^(?:export )?(GYMWEB_\w+)=", "\n".join(blocks("sh")), re.MULTILINE)
    assert [name for name in named if f"| `{name}` |" not in SETTINGS] == []
    assert len(named) >= 8


UNITS = dict(
    re.findall(r"`/etc/systemd/system/([\w@-]+\.service)`.*?```ini\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
)


@pytest.mark.parametrize("name", ["gymweb-web.service", "gymweb-worker@.service"])
def test_units_drain_before_they_are_killed_and_have_few_rights(name):
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str
    unit.read_string(UNITS[name])
    service = dict(unit["Service"])
    assert (service["KillSignal"], service["KillMode"], service["User"]) == ("SIGTERM", "mixed", "gymweb")
    assert int(service["TimeoutStopSec"]) >= 2 * settings.WORKER_GRACE_SECONDS
    hardened = {"NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "CapabilityBoundingSet": ""}
    assert {key: service[key] for key in hardened} == hardened
    assert service["ExecStart"].startswith(f"{service['WorkingDirectory']}/.venv/bin/python manage.py ")
    assert ("--no-worker" in service["ExecStart"]) == (name == "gymweb-web.service")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("name", ["gymweb-web.service", "gymweb-worker@.service"])
def test_systemd_understands_the_units(tmp_path, name):
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch(mode=0o755)
    path = tmp_path / name.replace("@.", "@1.")
    path.write_text(UNITS[name].replace("/opt/gymweb", str(tmp_path)).replace("User=gymweb", "User=root"))
    read = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
    ours = [line for line in (read.stdout + read.stderr).splitlines() if path.name in line]
    assert ours == []


def test_the_proxy_passes_what_gymweb_asks_for():
    [nginx] = blocks("nginx")
    assert "proxy_set_header Upgrade           $http_upgrade;" in nginx
    assert "proxy_set_header Host              $host;" in nginx
    assert "proxy_set_header X-Forwarded-Proto $scheme;" in nginx
    assert "proxy_set_header X-Request-ID      $request_id;" in nginx
    assert 'proxy_set_header traceparent       "";' in nginx
    assert nginx.count("server {") == nginx.count("combined if=$gymweb_log;") == 2
    assert "client_max_body_size 2g;" in nginx
    assert settings.MAX_BODY_BYTES == 2 * 1024**3
    assert nginx.count("{") == nginx.count("}")


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx_understands_the_proxy(tmp_path):
    certificate = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=gym.example.org"]
    subprocess.run(
        [*certificate, "-keyout", "key.pem", "-out", "cert.pem"], cwd=tmp_path, check=True, capture_output=True
    )
    [nginx] = blocks("nginx")
    nginx = re.sub(r"/etc/\S+fullchain\.pem", str(tmp_path / "cert.pem"), nginx)
    nginx = re.sub(r"/etc/\S+privkey\.pem", str(tmp_path / "key.pem"), nginx)
    nginx = nginx.replace("/var/log/nginx", str(tmp_path))
    whole = tmp_path / "nginx.conf"
    temporary = "\n".join(
        f"{kind}_temp_path {tmp_path}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    nginx = nginx.replace("listen 443", "listen 18443").replace("listen 80;", "listen 18080;")
    whole.write_text(
        f"pid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}\n{nginx}\n}}\n"
    )
    read = subprocess.run(
        [shutil.which("nginx") or "", "-t", "-p", str(tmp_path), "-c", str(whole)],
        env={**os.environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert read.returncode == 0, read.stderr


def test_the_docs_show_the_slurm_job():
    [shown] = [block for block in blocks("sh") if "#SBATCH" in block]
    assert shown == SLURM_JOB


def test_a_slurm_job_is_told_in_time_to_drain():
    [ahead] = re.findall(r"^#SBATCH --signal=B:TERM@(\d+)$", SLURM_JOB, re.MULTILINE)
    [grace] = re.findall(r"^export GYMWEB_WORKER_GRACE_SECONDS=(\d+)", SLURM_JOB, re.MULTILINE)
    assert int(ahead) >= int(grace) + 20
    last = SLURM_JOB.strip().splitlines()[-1]
    assert last.startswith("exec ") and " --no-background-jobs" in last


def names_of_metrics() -> set[str]:
    fleet = Fleet([], 0.0, {}, 0, 0.0, [], [], None)  # type: ignore[arg-type]
    counters = {count.shown for count in COUNTS}
    exposed = {family.name + ("_total" if family.name in counters else "") for family in expose(fleet)}
    own = [family for family in REGISTRY.collect() if family.name.startswith("gymweb_")]
    return exposed | {family.name + ("_total" if family.type == "counter" else "") for family in own}


def test_the_formula_of_connections_counts_every_kind_of_background_job():
    assert len(get_args(Thread)) == 12
    text = (ROOT / "docs/operate/scale.md").read_text()
    assert "workers with background jobs × 15\n" in text
    assert "twelve kinds of background jobs" in text


def test_every_metric_is_described_and_every_description_has_a_metric():
    import apps.dashboard.live.consumers  # noqa: F401 - counts sockets
    import gymweb.postgresql.connection_slots  # noqa: F401 - counts connections

    described = set(re.findall(r"`(gymweb_\w+)`", TEXT.split("## Metrics")[1].split("\n## ")[0]))
    assert described == names_of_metrics()
    assert set(Meters().read()["phases"]) == set(
        re.findall(r"`(\w+)`", re.findall(r"^\| `gymweb_phase_seconds`.*$", TEXT, re.MULTILINE)[0])[1:]
    )


def test_the_scrape_and_the_alerts_are_yaml_about_metrics_that_exist():
    found = [yaml.safe_load(block) for block in blocks("yaml")]
    [scrape] = [one for one in found if "scrape_configs" in one]
    [alerts] = [one for one in found if "groups" in one]
    [job] = scrape["scrape_configs"]
    assert (job["authorization"]["type"], job.get("metrics_path", "/metrics")) == ("Bearer", "/metrics")
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    assert all({"alert", "expr", "for"} == set(rule) for rule in rules)
    named = {name for rule in rules for name in re.findall(r"gymweb_\w+", rule["expr"])}
    assert named - names_of_metrics() == set()
    assert len(rules) >= 4
