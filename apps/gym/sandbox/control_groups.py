"""Find out where this process may create a control group (cgroup, version 1 or 2) with a memory limit."""

import os
import re
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

_ESCAPED = re.compile(r"\\([0-7]{3})")
_DELEGATED = ("user.delegate", "trusted.delegate")
"""Attributes by which systemd marks a group that it delegates to a unit."""


class NotDelegated(Exception):
    """Raised if there is no such group, with the reason."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A group in which child groups can be created."""

    folder: Path
    version: Literal[1, 2]


def find_place(*, groups: str | None = None, mounts: str | None = None) -> Place:
    """Return the place for new groups, without creating one.

    `groups` is the content of /proc/self/cgroup, `mounts` that of /proc/self/mountinfo. Raises NotDelegated.
    """
    try:
        of_process = _read_groups(Path("/proc/self/cgroup").read_text() if groups is None else groups)
        mounted = _read_mounts(Path("/proc/self/mountinfo").read_text() if mounts is None else mounts)
    except OSError as problem:
        raise NotDelegated(f"{problem.filename} cannot be read") from None
    if 1 in of_process and 1 in mounted:
        return _of_version_1(_own_folder(of_process[1], mounted[1]))
    if 2 in of_process and 2 in mounted:
        return _of_version_2(_own_folder(of_process[2], mounted[2]), top=Path(mounted[2][1]))
    raise NotDelegated("no control groups for memory are mounted")


def _of_version_1(own: Path) -> Place:
    # A child that is not counted in its parent would escape the limit of this process.
    if _read(own / "memory.use_hierarchy") == "0":
        raise NotDelegated(f"{own} does not account for child groups")
    return _writable(own, version=1)


def _of_version_2(own: Path, *, top: Path) -> Place:
    """Return the process's own group if it delegates memory, else its parent group. Raises NotDelegated.

    With processes in it, only the root group can delegate memory. The parent group must be delegated to this process.
    """
    if "memory" not in _read(own / "cgroup.controllers").split():
        raise NotDelegated(f"{own} has no memory limit")
    if "memory" in _read(own / "cgroup.subtree_control").split():
        return _writable(own, version=2)
    above = own.parent
    if own == top or not _is_ours(above):
        raise NotDelegated(f"{above if own != top else own} is not delegated to this process")
    if _read(own / "memory.max") not in ("max", ""):
        raise NotDelegated(f"{own} has a memory limit that a sibling group would escape")
    place = _writable(above, version=2)
    if "memory" not in _read(above / "cgroup.subtree_control").split():
        try:
            (above / "cgroup.subtree_control").write_text("+memory")
        except OSError as problem:
            raise NotDelegated(f"{above} does not delegate memory: {problem.strerror}") from None
    return place


def _is_ours(folder: Path) -> bool:
    """Return True if the group is delegated to this process.

    Root can write everywhere, so a delegated group needs its mark. Slices belong to systemd, even if writable.
    """
    if folder.suffix == ".slice":
        return False
    if os.geteuid() != 0:
        return os.access(folder / "cgroup.procs", os.W_OK)
    for name in _DELEGATED:
        try:
            if os.getxattr(folder, name) == b"1":
                return True
        except OSError:
            continue
    return False


def _writable(folder: Path, *, version: Literal[1, 2]) -> Place:
    # False for root too, if the mount is read-only.
    if not os.access(folder, os.W_OK):
        raise NotDelegated(f"{folder} cannot be written to")
    return Place(folder=folder, version=version)


def _read_groups(told: str) -> dict[int, str]:
    """Return the process's own group by version; for version 1 that of memory."""
    found: dict[int, str] = {}
    for line in told.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            found[1] = path
        elif number == "0" and not controllers:
            found[2] = path
    return found


def _read_mounts(told: str) -> dict[int, tuple[str, str]]:
    """Return the root and mount point of each version."""
    found: dict[int, tuple[str, str]] = {}
    for line in told.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        seen = _plain(fields[3]), _plain(fields[4])
        if kind[0] == "cgroup" and "memory" in kind[2].split(","):
            found.setdefault(1, seen)
        elif kind[0] == "cgroup2":
            found.setdefault(2, seen)
    return found


def _own_folder(path: str, mounted: tuple[str, str]) -> Path:
    root, point = mounted
    try:
        below = PurePosixPath(path).relative_to(root)
    except ValueError:
        raise NotDelegated(f"the group {path} of this process is not below what is mounted at {point}") from None
    if ".." in below.parts:
        raise NotDelegated(f"the group {path} of this process is outside what it sees")
    return Path(point) / below


def _plain(field: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), field)


def _read(file: Path) -> str:
    """Return the content of a file, or an empty text if it cannot be read."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
