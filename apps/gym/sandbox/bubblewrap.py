"""The sandbox: bubblewrap's namespaces around one Python process. No network, no files but Python's own, read-only, no
/proc, an own small /tmp, bounded memory, processes, time and output. A fresh one for every execution."""

import functools
import json
import os
import shutil
import subprocess
from pathlib import Path

from apps.gym.sandbox.boot import boot_arguments
from apps.gym.sandbox.protocol import Limits, Outcome, SandboxMissing
from apps.gym.sandbox.reading import run_bounded
from apps.gym.sandbox.syscalls import build_filter

_NOBODY = "65534"
_SMALLEST = "4096"
"""Bytes of a file system in memory that holds nothing."""
_NEEDED = "apt-get install bubblewrap on Debian and Ubuntu"
_ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
"""All that bubblewrap itself gets: nothing of this process."""
_TELL = (
    "import json, sys, sysconfig; print(json.dumps([sys.version_info[:2], sysconfig.get_path('stdlib'), "
    "sysconfig.get_path('platstdlib'), sysconfig.get_config_var('LIBDIR')]))"
)
_LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/lib32")
_ROOTS = ("/lib", "/lib64", "/lib32")


class Bubblewrap:
    """`python` is the interpreter that runs inside, which every user of the machine must be able to read."""

    name = "bubblewrap"
    lacks = ""

    def __init__(self, *, python: str) -> None:
        self._python = python

    def run(self, program: str, *, stdin: bytes = b"", limits: Limits = Limits()) -> Outcome:  # noqa: B008 - frozen
        given = program.encode(errors="replace")
        wrapped = [*_wrapping(self._python), "--size", str(limits.files), "--tmpfs", "/tmp", "--chdir", "/tmp"]  # noqa: S108 - inside
        filtered = build_filter()
        descriptor = _as_descriptor(filtered) if filtered else None
        try:
            if descriptor is not None:
                wrapped += ["--seccomp", str(descriptor)]
            return run_bounded(
                [*wrapped, "--remount-ro", "/", "--", *boot_arguments(_real(self._python), given, limits)],
                stdin=given + stdin,
                limits=limits,
                env=_ENVIRONMENT,
                pass_fds=[] if descriptor is None else [descriptor],
            )
        except FileNotFoundError as error:
            raise SandboxMissing(f"{error.filename} is not installed: {_NEEDED}") from None
        finally:
            if descriptor is not None:
                os.close(descriptor)


def _as_descriptor(content: bytes) -> int:
    """A pipe's end that gives the content once; it fits the pipe's room."""
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    return reading


@functools.cache
def _wrapping(python: str) -> list[str]:
    """Everything but what an execution says of itself. Raises SandboxMissing."""
    as_nobody: list[str] = []
    if os.geteuid() == 0:
        # bubblewrap started by root would leave it root's rights over files.
        as_nobody = [_find("setpriv"), "--reuid", _NOBODY, "--regid", _NOBODY, "--clear-groups", "--"]
    command = [*as_nobody, _find("bwrap"), "--unshare-all", "--unshare-user", "--disable-userns"]
    command += ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--uid", _NOBODY, "--gid", _NOBODY]
    command += ["--hostname", "sandbox", "--clearenv"]
    for name, value in _inner_environment(python).items():
        command += ["--setenv", name, value]
    for folder in _folders(python):
        command += ["--ro-bind", folder, folder]
    for root in _ROOTS:
        if Path(root).is_symlink():
            command += ["--symlink", str(Path(root).readlink()), root]
        elif Path(root).is_dir():
            command += ["--ro-bind", root, root]
    for packages in _find_packages(_folders(python)):
        # What is installed beside Python is nobody's business. A tmpfs is writable, and as large as half the machine's
        # memory, unless it is told otherwise; the root's own read-only mount does not reach it.
        command += ["--size", _SMALLEST, "--tmpfs", packages, "--remount-ro", packages]
    return [*command, "--dev-bind", "/dev/null", "/dev/null"]


def _folders(python: str) -> list[str]:
    """Where Python and the libraries that it is linked with are."""
    _, library, platform_library, _ = _ask(python)
    shared = [folder for folder in _LIBRARIES if Path(folder).is_dir() and not Path(folder).is_symlink()]
    own = [real for real in (_real(python), library, platform_library) if not _below(real, shared)]
    linked = [str(path) for path in Path(_ask(python)[3]).glob("libpython3*.so*") if not _below(str(path), shared)]
    return list(dict.fromkeys([*shared, *own, *linked]))


def _find_packages(folders: list[str]) -> list[str]:
    """Where packages are installed, below Python's own folder or beside it."""
    names = ("site-packages", "dist-packages")
    patterns = [f"{above}{name}" for name in names for above in ("", "python3*/")]
    found = (str(path) for folder in folders for pattern in patterns for path in Path(folder).glob(pattern))
    return sorted(set(found))


def _below(path: str, folders: list[str]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


def _inner_environment(python: str) -> dict[str, str]:
    return {
        "PYTHONHASHSEED": "0",
        "LANG": "C.UTF-8",
        "HOME": "/tmp",  # noqa: S108 - inside
        "PATH": str(Path(_real(python)).parent),
        "LD_LIBRARY_PATH": _ask(python)[3],
    }


@functools.cache
def _ask(python: str) -> tuple[list[int], str, str, str]:
    """What the interpreter says of itself, asked once, outside."""
    try:
        told = subprocess.check_output(  # noqa: S603 - the operator's own interpreter
            [python, "-I", "-S", "-c", _TELL], env=_ENVIRONMENT, timeout=30
        )
        version, library, platform_library, shared = json.loads(told)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise SandboxMissing(f"{python} is no Python that runs: {error}") from None
    if version < [3, 11]:
        raise SandboxMissing(f"{python} is Python {version[0]}.{version[1]}: 3.11 or newer is needed")
    # Where Python does not say where its shared library is, it has none of its own.
    return version, library, platform_library, shared or library


def _real(python: str) -> str:
    return str(Path(python).resolve())


def _find(program: str) -> str:
    found = shutil.which(program, path="/usr/bin:/bin:/usr/local/bin:/usr/sbin:/sbin")
    if found is None:
        raise SandboxMissing(f"{program} is not installed: {_NEEDED}")
    return found
