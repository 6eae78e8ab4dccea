"""Real servers for the fault scenarios, one of each for all tests of a process."""

import pytest

from scripts.servers import Postgres, Redis, ServerMissing, postgres, redis


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
