from collections.abc import Iterator

import pytest

from tests.clients.site import Site, open_site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """With its worker inside, on SQLite."""
    with open_site(tmp_path_factory.mktemp("site"), "--seats", "16") as opened:
        yield opened
