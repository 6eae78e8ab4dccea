"""The sandbox: bubblewrap namespaces around one Python process, created anew for each execution.

It has no network, only Python's own files (read-only), no /proc, a small private /tmp, and limits on memory, processes,
time and output.
"""

import functools
import json
import logging
import os
import shutil
import subprocess
from pathlib import Path

from apps.gym.sandbox.boot import boot_arguments, watch_start
from apps.gym.sandbox.bounded_output import run_bounded
from apps.gym.sandbox.memory_groups import Share
from apps.gym.sandbox.protocol import Limits, Outcome, SandboxMissing
from apps.gym.sandbox.syscalls import build_filter

logger = logging.getLogger(__name__)

UNPRIVILEGED = "65534"
_SMALLEST = "4096"
"""Bytes of an empty in-memory file system."""
_NEEDED = "apt-get install bubblewrap on Debian and Ubuntu"
_ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
"""The whole environment of bubblewrap: nothing of this process."""
_TELL = (
    "import json, sys, sysconfig; print(json.dumps([sys.version_info[:2], sysconfig.get_path('stdlib'), "
    "sysconfig.get_path('platstdlib'), sysconfig.get_config_var('LIBDIR')]))"
)
_PLACES = ("/mnt", "/media", "/srv", "/tmp")  # noqa: S108 - hidden only from one execution
_MOUNT = '"$1" -t tmpfs -o "$2" sandbox "$3" && shift 3 && exec "$@"'
_LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/lib32")
_ROOTS = ("/lib", "/lib64", "/lib32")


class Bubblewrap:
    """Runs programs in bubblewrap.

    `python` is the interpreter inside, which every user of the machine must be able to read. `share` is the control
    group of the execution, if it has one.
    """

    name = "bubblewrap"
    lacks = ""

    def __init__(self, *, python: str, share: Share | None = None) -> None:
        self._python = python
        self._share = share

    def run(self, program: str, *, stdin: bytes = b"", limits: Limits = Limits()) -> Outcome:  # noqa: B008 - frozen
        given = program.encode(errors="replace")
        place = _find_place(self._python)
        # bubblewrap limits the bytes of an in-memory file system but not the number of files, which take memory too.
        own = ["--bind", place] if place else ["--size", str(limits.files), "--tmpfs"]
        wrapped = [*as_nobody(), *(_counted(place, limits) if place else []), *_wrapping(self._python), *own, "/tmp"]  # noqa: S108 - inside
        wrapped += ["--chdir", "/tmp"]  # noqa: S108 - inside
        filtered = build_filter()
        descriptor = as_descriptor(filtered) if filtered else None
        try:
            if descriptor is not None:
                wrapped += ["--seccomp", str(descriptor)]
            with watch_start() as start:
                outcome = run_bounded(
                    [*wrapped, "--remount-ro", "/", "--", *boot_arguments(_real(self._python), given, limits, start)],
                    stdin=given + stdin,
                    limits=limits,
                    env=_ENVIRONMENT,
                    pass_fds=[start.descriptor, *([] if descriptor is None else [descriptor])],
                    share=self._share,
                )
                return start.check(outcome)
        except FileNotFoundError as error:
            raise SandboxMissing(f"{error.filename} is not installed: {_NEEDED}") from None
        finally:
            if descriptor is not None:
                os.close(descriptor)


@functools.cache
def _find_place(python: str) -> str:
    """Return a folder over which a file system with a file limit can be mounted privately, or an empty text."""
    for place in _PLACES:
        if not Path(place).is_dir() or any(is_below(folder, [place]) for folder in python_folders(python)):
            continue
        try:
            tried = subprocess.run(  # noqa: S603 - programs of the system
                [*as_nobody(), *_counted(place, Limits()), find_program("true")],
                env=_ENVIRONMENT,
                capture_output=True,
                timeout=30,
                check=False,
            )
            told = tried.stderr.decode(errors="replace").strip()
        except (SandboxMissing, OSError, subprocess.SubprocessError) as problem:
            told = str(problem)
        else:
            if not tried.returncode:
                return place
        logger.warning("file counts in the sandbox are not limited: %s", told[-300:])
        return ""
    return ""


def _counted(place: str, limits: Limits) -> list[str]:
    """Return a command prefix that mounts such a file system in a new namespace."""
    options = f"size={limits.files},nr_inodes={limits.entries},mode=0700"
    apart = [find_program("unshare"), "--user", "--map-root-user", "--mount", "--"]
    return [*apart, "/bin/sh", "-c", _MOUNT, "sh", find_program("mount"), options, place]


def as_descriptor(content: bytes) -> int:
    """Return a pipe end from which the content can be read once. The content fits into the pipe's buffer."""
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    return reading


def as_nobody(*options: str) -> list[str]:
    """Return a command prefix that drops the privileges of root; empty for other users.

    `options` are more options of setpriv. Raises SandboxMissing.
    """
    if os.geteuid() != 0:
        return []
    # If root starts bubblewrap, the program inside would keep root's access to files.
    setpriv = find_program("setpriv", "apt-get install util-linux, because code is never run as root")
    return [setpriv, "--reuid", UNPRIVILEGED, "--regid", UNPRIVILEGED, "--clear-groups", *options, "--"]


@functools.cache
def _wrapping(python: str) -> list[str]:
    """Return the arguments shared by all executions. Raises SandboxMissing."""
    command = [find_program("bwrap"), "--unshare-all", "--unshare-user", "--disable-userns"]
    command += ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--uid", UNPRIVILEGED, "--gid", UNPRIVILEGED]
    command += ["--hostname", "sandbox", "--clearenv"]
    for name, value in _inner_environment(python).items():
        command += ["--setenv", name, value]
    for folder in python_folders(python):
        command += ["--ro-bind", folder, folder]
    for root in _ROOTS:
        if Path(root).is_symlink():
            command += ["--symlink", str(Path(root).readlink()), root]
        elif Path(root).is_dir():
            command += ["--ro-bind", root, root]
    for packages in _find_packages(python_folders(python)):
        # Hide packages installed next to Python. A tmpfs is writable, and half the machine's memory unless limited; the
        # read-only root mount does not cover it.
        command += ["--size", _SMALLEST, "--tmpfs", packages, "--remount-ro", packages]
    return [*command, "--dev-bind", "/dev/null", "/dev/null"]


def python_folders(python: str) -> list[str]:
    """Return the folders of Python and the libraries that it is linked with."""
    _, library, platform_library, _ = _ask(python)
    shared = [folder for folder in _LIBRARIES if Path(folder).is_dir() and not Path(folder).is_symlink()]
    own = [real for real in (_real(python), library, platform_library) if not is_below(real, shared)]
    linked = [str(path) for path in Path(_ask(python)[3]).glob("libpython3*.so*") if not is_below(str(path), shared)]
    return list(dict.fromkeys([*shared, *own, *linked]))


def _find_packages(folders: list[str]) -> list[str]:
    """Return the folders of installed packages, in or beside Python's own folder."""
    names = ("site-packages", "dist-packages")
    patterns = [f"{above}{name}" for name in names for above in ("", "python3*/")]
    found = (str(path) for folder in folders for pattern in patterns for path in Path(folder).glob(pattern))
    return sorted(set(found))


def is_below(path: str, folders: list[str]) -> bool:
    """Return True if the path is one of the folders or in one of them."""
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
    """Return version and folders of the interpreter, queried once outside the sandbox."""
    try:
        told = subprocess.check_output(  # noqa: S603 - the operator's own interpreter
            [python, "-I", "-S", "-c", _TELL], env=_ENVIRONMENT, timeout=30
        )
        version, library, platform_library, shared = json.loads(told)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise SandboxMissing(f"{python} is not a working Python: {error}") from None
    if version < [3, 11]:
        raise SandboxMissing(f"{python} is Python {version[0]}.{version[1]}: 3.11 or newer is needed")
    # If Python does not name the folder of its shared library, it has none of its own.
    return version, library, platform_library, shared or library


def _real(python: str) -> str:
    return str(Path(python).resolve())


def find_program(program: str, needed: str = _NEEDED) -> str:
    """Return the path of an installed program. Raises SandboxMissing, whose message ends with `needed`, the remedy."""
    found = shutil.which(program, path="/usr/bin:/bin:/usr/local/bin:/usr/sbin:/sbin")
    if found is None:
        raise SandboxMissing(f"{program} is not installed: {needed}")
    return found
