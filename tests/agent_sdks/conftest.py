from collections.abc import Iterator

import pytest

from tests.clients.site import Site, open_site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(tmp_path_factory.mktemp("sdks"), "--seats", "8") as opened:
        yield opened
