"""Images without a registry: bases from Debian's packages, which stay cached, and GymWeb of this or an older commit."""

import ast
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path, PurePath

from gymweb.migration_state import list_replaced
from tests.containers.podman import Podman

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
INCLUDED = "python3,python3-pip,ca-certificates"
MIGRATIONS = "apps/*/migrations/0*.py"
STAND_INS = {"postgres:17": "postgres", "redis:8": "redis"}
"""Images of compose.yaml, and the container file that stands in for each."""


def make_base(podman: Podman) -> str:
    """Return the name of an image with Debian of this machine and Python, made once with debootstrap."""
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    listed = ["apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)", "Created-By: Packages"]
    targets = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.splitlines()
    mirror = next(line.split()[1] for line in targets if line.startswith(f"{release} "))
    tag = hashlib.sha256(f"{release} {mirror} {INCLUDED}".encode()).hexdigest()[:12]
    name = f"localhost/debian-python:{tag}"
    if podman.run("image", "exists", name, check=False).returncode == 0:
        return name
    with tempfile.TemporaryDirectory(prefix="gymweb-base-") as folder:
        root, archive = Path(folder) / "root", Path(folder) / "root.tar"
        podman.run(Path("debootstrap"), "--variant=minbase", f"--include={INCLUDED}", release, root, mirror)
        for marker in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            marker.unlink()
        (root / "usr/bin/python").symlink_to("python3")
        for lists in ("var/cache/apt", "var/lib/apt/lists"):
            shutil.rmtree(root / lists)
        podman.run(Path("tar"), "--create", "--file", archive, "--directory", root, "--numeric-owner", ".")
        podman.run("import", archive, name)
    return name


def make_stand_ins(podman: Podman, base: str) -> None:
    """Make the images of PostgreSQL and Redis that compose.yaml names, with Debian's versions."""
    for name, file in STAND_INS.items():
        options = ["--network", "host", "--build-arg", f"BASE={base}", "--tag", f"localhost/{name}"]
        podman.run("build", *options, "--file", HERE / f"{file}.containerfile", HERE)


def pip_mounts(folder: Path) -> list[str]:
    """Return the `--volume` options that give a build pip's configuration of this machine and what it refers to."""
    listed = [sys.executable, "-m", "pip", "config", "list"]
    printed = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.splitlines()
    configured = {}
    for key, _, value in (line.partition("=") for line in printed):
        configured.setdefault(key.rpartition(".")[2], ast.literal_eval(value))
    file = folder / "pip.conf"
    file.write_text("\n".join(["[global]", *(f"{key} = {value}" for key, value in configured.items())]) + "\n")
    words = [Path(word.removeprefix("file://")) for value in configured.values() for word in value.split()]
    # The pages of a local index refer to files beside it.
    near = {word if word.is_file() else Path(*word.parts[:3]) for word in words if word.is_absolute() and word.exists()}
    mounts = [f"{file}:/etc/pip.conf:ro", *(f"{path}:{path}:ro" for path in sorted(near))]
    return [part for mount in mounts for part in ("--volume", mount)]


def build_options(folder: Path) -> list[str]:
    """Return the options of `podman build` for GymWeb. OCI's format has no health checks."""
    return ["--network", "host", "--format", "docker", *pip_mounts(folder)]


def find_version_before() -> str:
    """Return the newest release before this commit, or without one the commit before the newest migration.

    It lacks migrations of this checkout, and has no others than these as they are now and those that they replace.
    Return an empty string in a clone without such a commit.
    """
    now = {str(path.relative_to(ROOT)) for path in ROOT.glob(MIGRATIONS)}
    known = now | {f"apps/{label}/migrations/{name}.py" for label, name in list_replaced()}
    release = _git("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^")
    added = ["log", "--first-parent", "--diff-merges=first-parent", "--no-renames", "--diff-filter=A", "--format=%H^"]
    for commit in filter(None, [release, *_git(*added, "--", f":(glob){MIGRATIONS}").split()]):
        listed = _git("ls-tree", "-r", "--name-only", commit, "apps").splitlines()
        before = {path for path in listed if PurePath(path).match(MIGRATIONS)}
        changed = _git("diff", "--name-only", "--diff-filter=M", commit, "--", f":(glob){MIGRATIONS}")
        if before and before <= known and not now <= before and not (changed and before <= now):
            return commit
    return ""


def build_version(podman: Podman, commit: str, tag: str, *, base: str, folder: Path) -> None:
    """Build GymWeb of a commit, with the Dockerfile of this one: equal requirements are then installed once."""
    context = folder / "before"
    context.mkdir()
    archive = folder / "before.tar"
    # The modes of a checkout: equal files then give equal layers.
    _git("-c", "tar.umask=0022", "archive", "--output", str(archive), commit)
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", context], check=True)
    options = [*build_options(folder), "--build-arg", f"BASE={base}", "--tag", f"localhost/{tag}"]
    podman.run("build", *options, "--file", ROOT / "Dockerfile", context)


def _git(*words: str) -> str:
    env = {**os.environ, "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": str(ROOT)}
    done = subprocess.run(["git", *words], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
