import asyncio
from collections.abc import Iterator

import pytest

from scripts.fetch_command_agents import cache_folder
from tests.clients.site import Site, open_site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """With its worker inside, on SQLite."""
    with open_site(tmp_path_factory.mktemp("captured"), "--seats", "32", GYMWEB_WORKER_GRACE_SECONDS="1") as opened:
        yield opened


@pytest.fixture(scope="session")
def agents_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site whose command agents may read the installed command line agents."""
    var = tmp_path_factory.mktemp("agents")
    with open_site(var, "--seats", "4", GYMWEB_AGENT_MOUNTS=str(cache_folder())) as opened:
        yield opened


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the coroutines of this folder, each in a loop of its own."""
    if not asyncio.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
