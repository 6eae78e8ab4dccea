"""Build the Dockerfile and run compose.yaml in Podman: the image, a collection, and an upgrade from the version before.

The tests run in order on the same containers.
"""

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.rollouts.plans.sample_data import make_arithmetic_rows
from tests.bill_of_materials import read_packages, write_bill
from tests.containers.podman import Podman
from tests.containers.site import Site

pytestmark = pytest.mark.slow

READ_ONLY = ["--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--network", "none"]
SECRET_FILE = re.compile(r"(^|/)(\.git|\.env|\.netrc|\.pypirc|\.npmrc|\.ssh|secret_key|id_\w+|[^/]+\.sqlite3)(/|$)")
PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
REPEATS = 60


def read_layers(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each file in each layer above the base, those that later layers hide included."""
    with tarfile.open(archive) as saved:
        [manifest] = json.load(saved.extractfile("manifest.json"))
        yield "config", saved.extractfile(manifest["Config"]).read()
        for name in manifest["Layers"][1:]:
            with tarfile.open(fileobj=saved.extractfile(name)) as layer:
                for member in layer:
                    yield member.name, layer.extractfile(member).read() if member.isfile() else b""


def find_leaks(archive: Path, unwanted: list[bytes]) -> list[str]:
    """Return the files with secrets. Packages may bring test keys of their own."""
    found = []
    for name, content in read_layers(archive):
        is_configuration = name.endswith("pip.conf") and content
        is_key = "-packages/" not in name and PRIVATE_KEY.search(content)
        if is_configuration or is_key or SECRET_FILE.search(name) or any(word in content for word in unwanted):
            found.append(name)
    return found


def test_no_layer_contains_secrets_or_the_configuration_of_the_build(podman: Podman, image: str, tmp_path: Path):
    archive = tmp_path / "image.tar"
    podman.run("save", "--format", "docker-archive", "--output", archive, image)
    assert find_leaks(archive, [b"secret-of-the-build"]) == []
    [inspected] = json.loads(podman.run("image", "inspect", image).stdout)
    assert {entry.partition("=")[0] for entry in inspected["Config"]["Env"]} == {"PATH", "PYTHONUNBUFFERED", "GYMWEB_VAR"}


def test_the_scan_finds_files_that_a_later_layer_hides(podman: Podman, base: str, tmp_path: Path):
    (tmp_path / "containerfile").write_text(f"FROM {base}\nRUN echo SECRET=1 > /srv/.env\nRUN rm /srv/.env\n")
    podman.run("build", "--network", "none", "--tag", "localhost/gymweb:leaking", "--file", tmp_path / "containerfile")
    archive = tmp_path / "leaking.tar"
    podman.run("save", "--format", "docker-archive", "--output", archive, "localhost/gymweb:leaking")
    assert "srv/.env" in find_leaks(archive, [])


def test_the_image_has_the_packages_of_the_bill_of_materials(podman: Podman, base: str, image: str, tmp_path: Path):
    listed = [podman.run("run", "--rm", *READ_ONLY, name, "pip", "list", "--format", "json") for name in (base, image)]
    before, after = ({(one["name"], one["version"]) for one in json.loads(done.stdout)} for done in listed)
    installed = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in after - before}
    assert installed == read_packages(write_bill(tmp_path))


def test_a_process_is_no_root_and_writes_only_to_its_volume_and_tmp(podman: Podman, image: str):
    code = (
        "import os; print(os.getuid(), os.getgid() != 0)\n"
        "for path in ('/app', '/app/apps', '/etc', '/var/tmp', '/var/lib/gymweb', '/tmp'):\n"
        "    print(path, os.access(path, os.W_OK))"
    )
    said = podman.run("run", "--rm", *READ_ONLY, "--volume", "/var/lib/gymweb", image, "python", "-c", code).stdout
    assert said.splitlines()[0] == "10001 True"
    assert [line.split()[0] for line in said.splitlines()[1:] if line.endswith("True")] == ["/var/lib/gymweb", "/tmp"]


def test_a_volume_of_another_user_is_refused_with_its_remedy(podman: Podman, image: str, volume: Path):
    mount = ["--volume", f"{volume}:/var/lib/gymweb"]
    refused = podman.run("run", "--rm", *READ_ONLY, *mount, image, check=False)
    assert refused.returncode == 1
    assert "chown 10001 /var/lib/gymweb" in refused.stderr
    assert "Traceback" not in refused.stderr
    os.chown(volume, 10001, 10001)
    migrated = podman.run("run", "--rm", *READ_ONLY, *mount, image, "python", "manage.py", "migrate", "--verbosity", "0")
    assert (migrated.stderr, (volume / "gymweb.sqlite3").stat().st_uid) == ("", 10001)
    assert volume.stat().st_mode & 0o077 == 0


def test_a_single_container_collects_on_sqlite_without_a_network(podman: Podman, image: str):
    words = ["--rm", *READ_ONLY, "--volume", "/var/lib/gymweb", image, "python", "manage.py", "demo", "--no-serve"]
    summary = json.loads(podman.run("run", *words).stdout.splitlines()[-1])
    assert (summary["completed"], summary["failed"]) == (summary["rollouts"], 0)


@pytest.fixture(scope="module")
def collected(site: Site, image: str, image_before: str) -> dict[str, Any]:
    """The version before, with a finished collection and one that is interrupted by the end of its containers."""
    ...


