"""`manage.py run`: start GymWeb and all servers that configurations of NeMo Gym name, and stop them together."""

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import uuid
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import yaml
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from rich.console import Console
from rich.table import Table
from yarl import URL

from apps.environments.environment_changes import save_environment
from apps.environments.models import Adapter, Environment
from apps.gym.environments.registry import BUILTINS
from apps.gym.gymconfig.descriptions import MODELS, Description, describe_texts
from apps.gym.gymconfig.merging import ConfigRefused
from apps.rollouts.imports.gym_config_import import Registered, register_described
from gymweb.supervision.config_files import list_roots, read_files
from gymweb.supervision.server_list import (
    LABELS,
    Server,
    ServerList,
    find_free_port,
    find_port_problem,
    make_url,
)
from gymweb.supervision.stray_processes import VARIABLE, start_watcher
from gymweb.supervision.supervisor import ServerFailed, Stopped, Supervisor, find_unhealthy
from gymweb.supervision.virtual_environments import prepare_python

WEB = "gymweb"
_FILE = "global_config.yaml"
_GRACE_SECONDS = 5.0


class Command(BaseCommand):
    help = (
        "Start GymWeb with a worker, and every server that the configurations of NeMo Gym name; register the servers. "
        "Ctrl-C stops all of them. If one ends, all are stopped, and its log is printed. Without a configuration, only "
        "GymWeb starts, with its built-in environments."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--config", action="append", default=[], metavar="FILE", help="later files override")
        parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="overrides all files")
        parser.add_argument("--address", action="append", default=[], metavar="NAME=URL", help="a server that runs")
        parser.add_argument("--host", default="127.0.0.1", help="address of GymWeb (default: %(default)s)")
        parser.add_argument("--port", type=int, default=8000, help="port of GymWeb, 0 for any (default: %(default)s)")
        parser.add_argument("--python", type=Path, help="run all servers with this Python; build no environments")
        parser.add_argument("--json", action="store_true", help="print the table as JSON, one object per line")

    def handle(self, **options: Any) -> None:
        self.options = options
        self.folder = settings.VAR_DIR / "run"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CommandError(f"Another run uses {settings.VAR_DIR}. Stop it, or set GYMWEB_VAR.") from None
            try:
                call_command("migrate", verbosity=0)
                description, servers = self._read()
                left = asyncio.run(self._run(description, servers))
            except (ConfigRefused, OSError) as problem:
                raise CommandError(str(problem)) from None
            except KeyboardInterrupt:
                raise CommandError("Stopped before any server was started.", returncode=130) from None
        if left:
            raise CommandError(f"These processes did not stop: {', '.join(map(str, left))}")

    def _read(self) -> tuple[Description, ServerList]:
        files, python = self.options["config"], self.options["python"]
        addresses = dict(map(_read_address, self.options["address"]))
        extra = os.environ.get("NEMO_GYM_EXTRA_ROOTS", "")
        roots = list_roots(map(Path, files), extra=extra, installed=_packages_of(python) if python else None)
        texts = read_files(files, self.options["set"], roots) if files else {}
        description, self.values = describe_texts(texts, environment=os.environ)
        known = self.folder / "ports.json"
        servers = ServerList(
            description,
            self.values,
            addresses=addresses,
            roots=roots,
            known_ports=json.loads(known.read_text()) if known.exists() else {},
        )
        known.write_text(json.dumps(servers.ports()))
        self.logs = Path(self.values.text("nemo_gym_log_dir") or self.folder).absolute()
        self.logs.mkdir(parents=True, exist_ok=True)
        host, port = self.options["host"], self.options["port"] or find_free_port(self.options["host"])
        if problem := find_port_problem(host, port):
            raise CommandError(f"GymWeb cannot listen on {host}:{port}: {problem}. Choose another --port.")
        self.web = ("127.0.0.1" if host in ("0.0.0.0", "::") else host, port)  # noqa: S104 - a listening address
        self.built_in = [] if files else _register_built_in()
        return description, servers

    async def _run(self, description: Description, servers: ServerList) -> list[int]:
        run_id = uuid.uuid4().hex
        watcher = start_watcher(run_id)
        allowed = [*settings.OUTBOUND_ALLOW, *_find_local(servers.servers, description)]
        environment = {**os.environ, VARIABLE: run_id, "GYMWEB_OUTBOUND_ALLOW": ",".join(allowed)}
        settings.OUTBOUND_ALLOW = allowed
        supervisor = Supervisor(run_id, self.logs, environment, self._say)
        try:
            self._write(servers)
            urls = await supervisor.until(self._start(supervisor, servers))
            if servers.servers:
                await supervisor.until(self._register(description, servers))
            await supervisor.until(self._start_web(supervisor))
            self._print_table(servers, await supervisor.until(find_unhealthy(urls)))
            await supervisor.until(supervisor.watch(urls))
        except Stopped:
            self._say("Stopping …")
        except ServerFailed as failed:
            # Before the worker ends its rollouts, which may take long.
            self._say(f"{failed}\nStopping …")
            raise CommandError(f"{failed.name} failed.") from None
        finally:
            left = await supervisor.stop(WEB, seconds=_GRACE_SECONDS)
            watcher.communicate()
        return left

    async def _start(self, supervisor: Supervisor, servers: ServerList) -> dict[str, str]:
        """Start all processes, and return the URLs of all servers when they are healthy."""
        for server in servers.servers:
            supervisor.log_of(server.name).write_bytes(b"")
            if server.folder is None:
                continue

            async def run(command: list[str], server: Server = server) -> None:
                self._say(f"Installing {server.name}: {' '.join(command)}")
                await supervisor.run(server.name, command, server.folder or Path())

            given = self.options["python"]
            python = given.absolute() if given else await prepare_python(server.folder, servers.tree, run)
            existing = os.environ.get("PYTHONPATH")
            more = {
                "NEMO_GYM_CONFIG_DICT": yaml.safe_dump(servers.tree_for(server, self.web)),
                "NEMO_GYM_CONFIG_PATH": server.name,
                "PYTHONPATH": os.pathsep.join([str(server.folder), *([existing] if existing else [])]),
            }
            await supervisor.start(server.name, [str(python), server.entrypoint], server.folder, more)
        urls = {server.name: server.url for server in servers.servers}
        seconds = float(self.values.get("server_spinup_timeout_seconds", 600))
        await supervisor.wait_until_healthy(urls, seconds=seconds)
        return urls

    @sync_to_async
    def _register(self, description: Description, servers: ServerList) -> None:
        addresses = {server.name: server.url for server in servers.servers if server.kind != MODELS}
        try:
            done: Registered = register_described(description, self.values, addresses=addresses)
        finally:
            connections.close_all()
        for line in done.lines:
            self._say(" ".join(filter(None, [line.outcome, line.kind, line.slug, line.told])))

    async def _start_web(self, supervisor: Supervisor) -> None:
        supervisor.log_of(WEB).write_bytes(b"")
        host, port = self.options["host"], self.web[1]
        command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "serve", "--host", host, "--port", str(port)]
        await supervisor.start(WEB, command, Path.cwd(), {})
        await supervisor.wait_until_healthy({WEB: f"{make_url(*self.web)}/readyz"}, seconds=60)

    def _write(self, servers: ServerList) -> None:
        """Write the configuration for service discovery. It contains API keys, so only its owner may read it."""
        path = self.folder / _FILE
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(servers.tree, sort_keys=False))

    def _print_table(self, servers: ServerList, unhealthy: dict[str, str]) -> None:
        rows = [(name, "environment", "in this process", "built in") for name in self.built_in]
        rows += [(one.name, LABELS[one.kind], one.url, unhealthy.get(one.name, "healthy")) for one in servers.servers]
        rows.append((WEB, "web and worker", make_url(*self.web), "healthy"))
        columns = ("name", "kind", "address", "health")
        if self.options["json"]:
            for row in rows:
                self.stdout.write(json.dumps(dict(zip(columns, row, strict=True))))
        else:
            table = Table(*columns, box=None, header_style="bold")
            for row in rows:
                table.add_row(*row)
            # Whole addresses, also in narrow terminals.
            Console(width=max(Console().width, 160)).print(table)
        self.stdout.flush()
        self._say(f"Configuration: {self.folder / _FILE}. Logs: {self.logs}.")
        self._say(f"GymWeb is at {make_url(*self.web)}/. Ctrl-C stops all servers.")

    def _say(self, line: str) -> None:
        self.stderr.write(line)
        self.stderr.flush()


def _register_built_in() -> list[str]:
    """Register the built-in environments that need no judge model, and return the slugs of all that are registered."""
    for name, built_in in BUILTINS.items():
        if not built_in.asks_judge and not Environment.objects.filter(slug=name).exists():
            fields = {"slug": name, "name": name.replace("_", " ").capitalize(), "description": built_in.description}
            save_environment(environment=Environment(adapter=Adapter.BUILTIN, builtin=name, **fields), user=None)
    return list(Environment.objects.filter(adapter=Adapter.BUILTIN).order_by("slug").values_list("slug", flat=True))


def _packages_of(python: Path) -> Path:
    """Return the folder with the packages of a Python, where an installed NeMo Gym keeps its servers."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    asked = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    if asked.returncode:
        raise CommandError(f"{python} does not run: {asked.stderr.strip()}")
    return Path(asked.stdout.strip())


def _read_address(given: str) -> tuple[str, str]:
    name, _, url = given.partition("=")
    if not url.startswith(("http://", "https://")):
        raise CommandError(f"--address {given}: give NAME=URL.")
    return name, url


def _find_local(servers: list[Server], description: Description) -> list[str]:
    """Return host and port of what may be called without an entry of the operator: own processes, and loopback URLs."""
    own = {server.url for server in servers if server.folder}
    named = [server.url for server in servers] + [url for model in description.models for url in model.base_urls]
    urls = {URL(url) for url in named if url in own or URL(url).host in ("localhost", "127.0.0.1", "::1")}
    return sorted(f"{url.host_subcomponent}:{url.port}" for url in urls)
