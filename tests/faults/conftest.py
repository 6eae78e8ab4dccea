"""Real servers for the fault scenarios, one of each for all tests of a process."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from scripts.servers import Postgres, Redis, ServerMissing, postgres, redis
from tests.faults.installation import FULL, Installation

RESERVE = {"GYMWEB_MIN_FREE_BYTES": str(64 * 1024**2)}
"""With the default of 1 GB, what else is on the disk of this machine would decide whether rollouts run."""


@pytest.fixture(scope="session")
def postgres_server():
    try:
        with postgres() as server:
            yield server
    except ServerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def redis_server():
    try:
        with redis() as server:
            yield server
    except ServerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def database(postgres_server: Postgres) -> Postgres:
    """PostgreSQL, up again if the test before left it down."""
    postgres_server.start()
    return postgres_server


@pytest.fixture
def layer(redis_server: Redis) -> Redis:
    """Redis, up again if the test before left it down."""
    redis_server.start()
    return redis_server


@pytest.fixture(scope="session")
def migrated_url(postgres_server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with tables and nothing else, for others to be copied from."""
    Installation(tmp_path_factory.mktemp("template"), database_url=postgres_server.url).plan(migrate=True)
    return postgres_server.url


@pytest.fixture
def cluster(
    migrated_url: str, database: Postgres, layer: Redis, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Installation]:
    """An installation on PostgreSQL and Redis, with a database of its own."""
    name = re.sub(r"\W", "_", request.node.name)[:60]
    with psycopg.connect(migrated_url.replace("/gymweb", "/postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE gymweb")
    url = migrated_url.replace("/gymweb", f"/{name}")
    with contextlib.closing(Installation(tmp_path, database_url=url, redis_url=layer.url, **RESERVE)) as installation:
        yield installation


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Installation]:
    """The embedded default: SQLite, no Redis."""
    url = f"sqlite:///{tmp_path}/gymweb.sqlite3"
    with contextlib.closing(Installation(tmp_path, database_url=url, **RESERVE)) as installation:
        yield installation


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Callable[..., None]:
    """Print the figures of a scenario, one JSON object a line, past pytest's capturing."""

    def print_figures(**figures: object) -> None:
        print(json.dumps({"scenario": request.node.name, "full": FULL, **figures}))

    return print_figures
