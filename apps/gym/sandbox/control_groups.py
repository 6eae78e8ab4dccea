"""Where this process may make a control group with a bound on memory: a folder of the kernel's cgroups, of version 1
or 2, or the reason why there is none."""

import os
import re
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

_ESCAPED = re.compile(r"\\([0-7]{3})")
_DELEGATED = ("user.delegate", "trusted.delegate")
"""The marks of systemd on a group that it leaves to a unit."""


class NotDelegated(Exception):
    """There is none; the text says why."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A group in which further ones can be made."""

    folder: Path
    version: Literal[1, 2]


def find_place(*, groups: str | None = None, mounts: str | None = None) -> Place:
    """`groups` is what /proc/self/cgroup says, `mounts` /proc/self/mountinfo. Nothing is made; that it can be is seen
    when it is. Raises NotDelegated."""
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
    # A group that is not counted in the one above would be outside the bound of this very process.
    if _read(own / "memory.use_hierarchy") == "0":
        raise NotDelegated(f"{own} does not count what is below it")
    return _writable(own, version=1)


def _of_version_2(own: Path, *, top: Path) -> Place:
    """In the own group where it hands memory on, which only the machine's uppermost does while it has processes; else
    beside it, where the group above is left to us."""
    if "memory" not in _read(own / "cgroup.controllers").split():
        raise NotDelegated(f"{own} has no bound on memory to give")
    if "memory" in _read(own / "cgroup.subtree_control").split():
        return _writable(own, version=2)
    above = own.parent
    if own == top or not _is_ours(above):
        raise NotDelegated(f"{above if own != top else own} is not left to this process")
    if _read(own / "memory.max") not in ("max", ""):
        raise NotDelegated(f"{own} has a bound of its own, which a group beside it would be free of")
    place = _writable(above, version=2)
    if "memory" not in _read(above / "cgroup.subtree_control").split():
        try:
            (above / "cgroup.subtree_control").write_text("+memory")
        except OSError as problem:
            raise NotDelegated(f"{above} does not hand memory on: {problem.strerror}") from None
    return place


def _is_ours(folder: Path) -> bool:
    """Root may write everywhere, the neighbours of its unit included: what is left to it bears a mark. A slice is
    systemd's own, also where the user may write."""
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
    # Where the mount is read-only this says no to root too.
    if not os.access(folder, os.W_OK):
        raise NotDelegated(f"{folder} cannot be written to")
    return Place(folder=folder, version=version)


def _read_groups(told: str) -> dict[int, str]:
    """The process's own group: of version 1 that of memory."""
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
    """Which group is seen where."""
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
    """Empty where there is no such file."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
