"""The arguments of bubblewrap for a box: its namespaces, folders, variables and system call filter."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from apps.gym.boxes.box_launcher import SOCKET
from apps.gym.boxes.mounts import mount_arguments
from apps.gym.sandbox.bubblewrap import UNPRIVILEGED, as_nobody, find_program, is_below, python_folders
from apps.gym.sandbox.syscalls import build_filter

WORK, HOME, TMP = "/work", "/home/agent", "/tmp"  # noqa: S108 - inside
FOLDERS = {"work": WORK, "home": HOME, "tmp": TMP}
"""The writable folders of a box, and their places in it."""

_SYSTEM = ("/usr", "/etc/alternatives", "/etc/ld.so.cache")
_ROOTS = ("/bin", "/sbin", "/lib", "/lib64", "/lib32")
_SHARED_MEMORY = str(256 * 1024**2)
_ACCOUNTS = {
    "/etc/passwd": f"agent:x:{UNPRIVILEGED}:{UNPRIVILEGED}::{HOME}:/bin/sh\n",
    "/etc/group": f"agent:x:{UNPRIVILEGED}:\n",
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
}
_VARIABLES = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": HOME, "USER": "agent", "LANG": "C.UTF-8"}
_ALLOWED = ("memfd_create",)
_FAMILIES = (1, 2, 10, 16)
"""Sockets of AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK. The network namespace limits these, but not, for example, the
sockets between a virtual machine and its host."""


class Passed:
    """File descriptors that a new process inherits. Close them after it was started."""

    def __init__(self) -> None:
        self.descriptors: list[int] = []

    def add(self, descriptor: int) -> int:
        self.descriptors.append(descriptor)
        return descriptor

    def write(self, content: bytes) -> str:
        """Return a descriptor from which the content can be read."""
        descriptor = self.add(os.memfd_create("gymweb-box"))
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return str(descriptor)

    def close(self) -> None:
        while self.descriptors:
            os.close(self.descriptors.pop())


def wrap(
    passed: Passed,
    *,
    folder: Path,
    socket: str,
    python: str,
    mounts: Sequence[str],
    hidden: Sequence[str],
    variables: Mapping[str, str],
) -> list[str]:
    """Return the words before a command that run it in a box. Raises SandboxMissing."""
    words = ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"]
    words += ["--cap-drop", "ALL", "--uid", UNPRIVILEGED, "--gid", UNPRIVILEGED, "--hostname", "box", "--clearenv"]
    for name, value in {**_VARIABLES, **variables}.items():
        words += ["--setenv", name, value]
    words += ["--proc", "/proc", "--dev", "/dev", "--size", _SHARED_MEMORY, "--tmpfs", "/dev/shm"]  # noqa: S108
    words += ["--remount-ro", "/dev"]
    for name, place in FOLDERS.items():
        words += ["--bind", str(folder / name), place]
    for root in map(Path, _ROOTS):
        if root.is_symlink():
            words += ["--symlink", str(root.readlink()), str(root)]
        elif root.is_dir():
            words += ["--ro-bind", str(root), str(root)]
    words += mount_arguments([*_system_folders(python), *mounts], hidden)
    for path, content in _ACCOUNTS.items():
        words += ["--ro-bind-data", passed.write(content.encode()), path]
    words += ["--bind", socket, SOCKET, "--chdir", WORK, "--remount-ro", "/"]
    if filtered := build_filter(allowed=_ALLOWED, families=_FAMILIES):
        words += ["--seccomp", passed.write(filtered)]
    # Not on the command line, which every user of the machine can read.
    given = passed.write(b"".join(word.encode() + b"\0" for word in words))
    return [*as_nobody(), find_program("bwrap"), "--args", given, "--"]


def _system_folders(python: str) -> list[str]:
    own = [folder for folder in python_folders(python) if not is_below(folder, ["/usr", *_ROOTS])]
    return [*(folder for folder in _SYSTEM if Path(folder).exists()), *own]
