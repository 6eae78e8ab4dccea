"""Images and services of this checkout in Podman, removed after the tests of a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.images import ROOT, build_options, build_version, find_version_before, make_base, make_stand_ins
from tests.containers.podman import Podman, missing_packages, open_podman
from tests.containers.site import COMPOSE, PROJECT, Site


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    if not COMPOSE.exists():
        pytest.skip("podman-compose is not installed: pip install -r requirements-dev.txt")
    if packages := missing_packages():
        pytest.skip(f"containers need root and: apt-get install {' '.join(packages)}")
    with open_podman() as opened:
        yield opened


@pytest.fixture(scope="module")
def base(podman: Podman) -> str:
    return make_base(podman)


@pytest.fixture(scope="module")
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pip's configuration for the builds, and the code of the version before."""
    return tmp_path_factory.mktemp("build")


@pytest.fixture(scope="module")
def image(podman: Podman, base: str, build_folder: Path) -> str:
    """The image of this checkout, built as `compose.yaml` says."""
    words = " ".join(build_options(build_folder))
    build = ["--project-name", PROJECT, f"--podman-build-args={words}", "build", "--build-arg", f"BASE={base}", "web"]
    # Compose refuses to read the file without them, and the image must contain none.
    unused = dict.fromkeys(("GYMWEB_SECRET_KEY", "POSTGRES_PASSWORD", "REDIS_PASSWORD"), "secret-of-the-build")
    podman.run(COMPOSE, "--file", ROOT / "compose.yaml", *build, env=unused)
    podman.run("tag", "localhost/gymweb", "localhost/gymweb:now")
    return "localhost/gymweb:now"


@pytest.fixture(scope="module")
def image_before(podman: Podman, base: str, image: str, build_folder: Path) -> str:
    """The image of the version before, or in a clone without its history this version itself.

    It comes second, so that the installed packages come from the cache.
    """
    commit = find_version_before()
    if not commit:
        return image
    build_version(podman, commit, "gymweb:before", base=base, folder=build_folder)
    return "localhost/gymweb:before"


@pytest.fixture(scope="module")
def site(podman: Podman, base: str, image: str, tmp_path_factory: pytest.TempPathFactory) -> Site:
    make_stand_ins(podman, base)
    return Site(podman, tmp_path_factory.mktemp("site"))


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A folder of the host that belongs to root, as `mkdir` makes it."""
    folder = tmp_path / "volume"
    folder.mkdir()
    return folder
