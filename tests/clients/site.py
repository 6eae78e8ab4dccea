"""A served GymWeb of its own with its worker, a key and a mock model, for programs that use the API."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gymweb.serving import ROOT, Served, serving
from tests.migrated import lay_out_for
from tests.walk.processes import process

_SEED = """
import django, sys
django.setup()
from apps.accounts.api_keys import create_api_key
from tests.factories import make_user
for role in ("engineer", "viewer"):
    print(create_api_key(user=make_user(role, username=role), name="tests", scopes=["admin"])[1])
"""
_COUNTS = """
import django, json, sys
django.setup()
from apps.rollouts.models import Collection
from apps.tasks.models import DatasetVersion
row = Collection.objects.get(pk=int(sys.argv[1]))
print(json.dumps({"state": row.state, "total": row.total, "completed": row.completed}))
"""


@dataclass
class Site:
    served: Served
    model: str
    key: str
    viewer_key: str
    environment: dict[str, str]

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.served.port}"

    def counts(self, collection: int) -> dict[str, Any]:
        """Of a collection, as another process reads them from the database."""
        counts: dict[str, Any] = json.loads(run(self.environment, "-c", _COUNTS, str(collection)))
        return counts


def run(environment: dict[str, str], *words: str) -> str:
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment, check=True, text=True, stdout=subprocess.PIPE
    ).stdout


@contextmanager
def open_site(var: Path, *serve: str, latency: int = 20, **settings: str) -> Iterator[Site]:
    given = {
        "DJANGO_SETTINGS_MODULE": "gymweb.settings",
        "GYMWEB_VAR": str(var),
        "GYMWEB_DATABASE_URL": f"sqlite:///{var}/gymweb.sqlite3",
        "GYMWEB_REDIS_URL": "",
        "GYMWEB_OUTBOUND_ALLOW": "127.0.0.1",
        **settings,
    }
    environment = {**os.environ, **given, "PYTHONPATH": str(ROOT)}
    lay_out_for(environment)
    key, viewer_key = run(environment, "-c", _SEED).split()
    answers = ["--tool-calls", "0", "--final", "4", "--tokens", "6", "--latency-ms", str(latency)]
    mock = process(ROOT / "scripts" / "mock_model.py", "--port", "PORT", *answers)
    with mock as port, serving(var, *serve, **given) as served:
        yield Site(served, f"http://127.0.0.1:{port}/v1", key, viewer_key, environment)
