"""The services of compose.yaml as podman-compose runs them, and the API of their web process."""

import json
import secrets
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from scripts.servers import free_port
from tests.containers.images import ROOT
from tests.containers.podman import Podman
from tests.deadlines import wait_until

PROJECT = "gymweb-walk"
SECRETS = ("GYMWEB_SECRET_KEY", "POSTGRES_PASSWORD", "REDIS_PASSWORD")
COMPOSE = Path(sys.executable).parent / "podman-compose"


class Site:
    """An installation in containers. Its volumes stay when its services stop."""

    def __init__(self, podman: Podman, folder: Path) -> None:
        self.podman = podman
        self.secrets = {name: secrets.token_hex(32) for name in SECRETS}
        self.port = free_port()
        self.key = self.started_at = ""
        self._env_file = folder / "env"
        lines = {**self.secrets, "PORT": str(self.port), "GYMWEB_WORKER_SEATS": "32"}
        self._env_file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    def compose(self, *words: str) -> str:
        """Run `podman-compose WORDS…` with the compose.yaml of this checkout, and return its standard output."""
        options = ["--file", ROOT / "compose.yaml", "--env-file", self._env_file, "--project-name", PROJECT]
        return self.podman.run(COMPOSE, *options, *words, env={"PODMAN_COMPOSE_WARNING_LOGS": "0"}).stdout

    def use(self, image: str) -> None:
        """Give an image the name that compose.yaml starts."""
        self.podman.run("tag", image, "localhost/gymweb:latest")

    def start(self, *, workers: int) -> None:
        """Start all services in the order of `depends_on`, which podman-compose cannot await with Podman before 4.6."""
        self.up("postgres", "redis")
        for name in ("postgres", "redis"):
            self.wait_healthy(name)
        self.up("migrate")
        self.podman.run("wait", "--condition", "exited", *self.containers("migrate"))
        self.started_at = self.query("SELECT now()")[0]
        self.up("--scale", f"worker={workers}", "web", "worker")
        self.wait_healthy("web")
        wait_until(lambda: self.count_workers("state = 'active'") == workers, what=self.describe)

    def up(self, *words: str) -> None:
        self.compose("up", "--detach", "--no-build", "--no-deps", *words)

    def stop(self) -> None:
        """Stop and remove all containers. `podman-compose down` would stop the database before workers have drained."""
        self.stop_workers()
        self.podman.run("rm", *self.containers("worker"))
        self.compose("down")

    def stop_workers(self) -> None:
        """Stop all workers; `podman-compose stop` knows the first only."""
        self.podman.run("stop", "--time", "45", *self.containers("worker"))

    def containers(self, service: str) -> list[str]:
        labels = {"com.docker.compose.project": PROJECT, "com.docker.compose.service": service}
        filters = [word for key, value in labels.items() for word in ("--filter", f"label={key}={value}")]
        return self.podman.ids("ps", "--all", "--quiet", *filters)

    def inspect(self, service: str) -> list[dict[str, Any]]:
        return json.loads(self.podman.run("inspect", *self.containers(service)).stdout)

    def is_healthy(self, service: str) -> bool:
        return self.podman.run("healthcheck", "run", *self.containers(service), check=False).returncode == 0

    def wait_healthy(self, service: str) -> None:
        wait_until(lambda: self.is_healthy(service), what=lambda: f"{service} is healthy\n{self.describe()}")

    def count_workers(self, condition: str) -> int:
        """Return how many workers of the current containers meet a condition in SQL."""
        found = f"SELECT count(*) FROM rollouts_worker WHERE started_at > '{self.started_at}' AND {condition}"
        return int(self.query(found)[0])

    def query(self, sql: str) -> list[str]:
        """Return the rows of a query, as PostgreSQL prints them."""
        [postgres] = self.containers("postgres")
        password = f"PGPASSWORD={self.secrets['POSTGRES_PASSWORD']}"
        words = ["psql", "--host", "127.0.0.1", "--username", "gymweb", "--no-align", "--tuples-only", "--command", sql]
        return self.podman.run("exec", "--env", password, postgres, *words).stdout.splitlines()

    def manage(self, *words: str) -> str:
        """Run `manage.py WORDS…` in the web container, as docs/operate/deploy.md does."""
        return self.compose("exec", "-T", "web", "python", "manage.py", *words).strip()

    def call(self, path: str, body: Any = None, media_type: str = "application/json") -> Any:
        """Return the answer of the API. A body makes it a POST."""
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": media_type}
        address = f"http://127.0.0.1:{self.port}{path}"
        with urllib.request.urlopen(urllib.request.Request(address, content, headers), timeout=120) as reply:
            read = reply.read()
        return json.loads(read) if reply.headers.get_content_type() == "application/json" else read

    def wait_ended(self, collection: int, number: int) -> None:
        """Wait until so many rollouts of the collection have ended."""
        path = f"/api/v1/collections/{collection}/"

        def enough() -> bool:
            time.sleep(0.2)
            found = self.call(path)
            return found["completed"] + found["failed"] >= number

        wait_until(enough, what=self.describe)

    def describe(self) -> str:
        """Return the states and last log lines of all containers, for a message."""
        said = [self.podman.run("ps", "--all").stdout]
        for name in self.podman.ids("ps", "--all", "--format", "{{.Names}}"):
            logged = self.podman.run("logs", "--tail", "20", name, check=False)
            said.append(f"{name}\n{logged.stdout[-1500:]}{logged.stderr[-1500:]}")
        return "\n".join(said)
