"""Podman with a store of its own, so that tests see and remove only their own containers, volumes and networks."""

import contextlib
import fcntl
import hashlib
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(os.environ.get("GYMWEB_ENVS") or "~/.cache/gymweb").expanduser() / "containers"
PACKAGES = {
    "podman": "podman",
    "buildah": "buildah",
    "runc": "runc",
    "debootstrap": "debootstrap",
    "iptables": "iptables",
    "catatonit": "catatonit",
    "/usr/lib/podman/netavark": "netavark",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
}
"""Programs, and the Debian packages that contain them."""
LIMIT = 8192
"""Open files and processes of a container. Podman's defaults need CAP_SYS_RESOURCE, which not every machine gives."""

ENGINE = """
[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
init_path = "/usr/bin/catatonit"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{run}/libpod"
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""
STORAGE = """
[storage]
driver = "{driver}"
graphroot = "{folder}/store"
runroot = "{run}/store"
"""


def missing_packages() -> list[str]:
    """Return the Debian packages that this machine lacks for the tests."""
    return [package for program, package in PACKAGES.items() if not shutil.which(program)]


class Podman:
    """Podman's command line, as root, with runc."""

    def __init__(self, folder: Path) -> None:
        digest = hashlib.sha256(str(folder).encode()).hexdigest()[:8]
        # Sockets are in this folder, and their paths must be short.
        run = Path("/tmp") / f"gymweb-containers-{digest}"
        folder.mkdir(parents=True, exist_ok=True)
        files, processes = (_at_most(kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
        # Overlays cannot be stacked: this machine may be a container itself.
        on_overlay = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True)
        driver = "vfs" if on_overlay.stdout.strip() == "overlayfs" else "overlay"
        places = {"folder": folder, "run": run, "driver": driver, "files": files, "processes": processes}
        for name, text in (("containers.conf", ENGINE), ("storage.conf", STORAGE)):
            (folder / name).write_text(text.format_map(places))
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GYMWEB_")},
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            # Timers for health checks need systemd: the tests run the checks themselves.
            "DISABLE_HC_SYSTEMD": "true",
        }

    def run(
        self, *words: str | Path, check: bool = True, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run `podman WORDS…`, or another program if the first word is a path. Raise AssertionError with its output."""
        command = [*(() if isinstance(words[0], Path) else ("podman",)), *map(str, words)]
        done = subprocess.run(
            command,
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-6000:]}{done.stderr[-6000:]}"
        return done

    def ids(self, *words: str) -> list[str]:
        """Return the lines that `podman WORDS…` prints."""
        return self.run(*words).stdout.split()

    def remove_all(self) -> None:
        """Remove all containers, volumes, networks and images of GymWeb. Images without GymWeb stay as a cache."""
        # The first call leaves containers that others, removed later by it, depend on.
        for last in (False, True):
            self.run("rm", "--all", "--force", "--time", "0", "--volumes", check=last)
        self.run("volume", "prune", "--force")
        self.run("network", "prune", "--force")
        if ours := self.ids("images", "--quiet", "--no-trunc", "--filter", "reference=localhost/gymweb"):
            self.run("rmi", "--force", *sorted(set(ours)))
        self.run("image", "prune", "--force")


@contextlib.contextmanager
def open_podman(folder: Path = FOLDER) -> Iterator[Podman]:
    """Provide Podman without containers, one user at a time. Containers of an interrupted run are removed first."""
    podman = Podman(folder)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        podman.remove_all()
        try:
            yield podman
        finally:
            podman.remove_all()


def _at_most(kind: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return LIMIT if hard == resource.RLIM_INFINITY else min(LIMIT, hard)
