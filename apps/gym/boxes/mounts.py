"""Which folders of the machine the command of an agent may read, besides the system's."""

from collections.abc import Iterator, Sequence
from pathlib import Path

_RESERVED = ("/dev", "/etc", "/home/agent", "/proc", "/run", "/tmp", "/usr", "/work")  # noqa: S108 - inside
_SMALLEST = "4096"
"""Bytes of an empty in-memory file system."""


def find_mount_problem(mount: str, *, allowed: Sequence[str], hidden: Sequence[str]) -> str:
    """Return why a folder may not be mounted; empty if it may.

    It must be one of the allowed folders, or in one. The hidden folders, in which secrets are, must not contain it,
    unless the operator allows it there.
    """
    if not Path(mount).is_absolute():
        return f"{mount!r} is not an absolute path."
    real = Path(mount).resolve()
    if any(Path(place).is_relative_to(real) for place in _RESERVED):
        return f"{mount!r} would hide a folder of the sandbox."
    for folder in (Path(one).resolve() for one in allowed):
        secret = [one for one in (Path(each).resolve() for each in hidden) if real.is_relative_to(one)]
        if real.is_relative_to(folder) and all(folder != one and folder.is_relative_to(one) for one in secret):
            return ""
    named = ", ".join(allowed) or "no folder"
    return f"{mount!r} is not allowed. GYMWEB_AGENT_MOUNTS allows {named}."


def mount_arguments(mounts: Sequence[str], hidden: Sequence[str]) -> list[str]:
    """Return the arguments of bubblewrap that mount folders read-only, and empty folders over the hidden ones."""
    real = list(dict.fromkeys(str(Path(mount).resolve()) for mount in mounts))
    covered = [each for each in dict.fromkeys(str(Path(one).resolve()) for one in hidden) if _is_in(each, real)]
    words: list[str] = []
    # Parents first: a later mount covers an earlier one at the same place.
    for place in sorted({*real, *covered}, key=lambda one: len(Path(one).parts)):
        words += ["--size", _SMALLEST, "--tmpfs", place] if place in covered else ["--ro-bind", place, place]
    words += [word for place in covered for word in ("--remount-ro", place)]
    return [*words, *_links(mounts)]


def _is_in(path: str, folders: Sequence[str]) -> bool:
    return Path(path).is_dir() and any(Path(path).is_relative_to(folder) for folder in folders)


def _links(mounts: Sequence[str]) -> Iterator[str]:
    """Yield arguments that make a link for each mount whose path has one."""
    for mount in dict.fromkeys(mounts):
        real = str(Path(mount).resolve())
        if real != str(Path(mount)):
            yield from ("--symlink", real, str(Path(mount)))
