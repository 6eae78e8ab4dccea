"""The sandbox's seccomp filter rejects system calls that exercises do not need and that enabled escapes before.

It is classic BPF, see `man 2 seccomp`.
"""

import platform
import struct
from collections.abc import Collection, Iterator

REFUSED: dict[str, tuple[int, int]] = {
    "socket": (41, 198),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
}
"""Rejected calls with their numbers on x86_64 and aarch64.

`socket` is among them, so programs get at most socket pairs.
"""

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_X32 = 0x40000000
_CLONE3 = 435
"""The flags of clone3 are in memory, which no filter can read.

It is reported as missing, so the C library uses the older call.
"""


def build_filter(
    machine: str = platform.machine(), *, allowed: Collection[str] = (), families: Collection[int] = ()
) -> bytes:
    """Return the filter, or no bytes for an unknown architecture.

    `allowed` names calls that are not rejected. `families` are the address families of sockets that programs may open.
    """
    if machine not in _ARCHITECTURES:
        return b""
    column, architecture = _ARCHITECTURES[machine]
    numbers = [both[column] for name, both in REFUSED.items() if name not in (*allowed, *(["socket"] * bool(families)))]
    # The last three steps are: allow, refuse, report as missing. Jump offsets count the steps between.
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        *(_check_family(REFUSED["socket"][column], families) if families else ()),
        (_AT_LEAST, len(numbers) + 2, 0, _X32),
        (_EQUAL, len(numbers) + 2, 0, _CLONE3),
        *((_EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE | _EPERM),
        (_RETURN, 0, 0, _REFUSE | _ENOSYS),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in program)


def _check_family(socket: int, families: Collection[int]) -> Iterator[tuple[int, int, int, int]]:
    """Yield steps that end the filter for calls of `socket`: they depend on its first argument."""
    yield (_EQUAL, 0, len(families) + 3, socket)
    yield (_LOAD, 0, 0, _FIRST_ARGUMENT_AT)
    for at, family in enumerate(families):
        yield (_EQUAL, len(families) - at, 0, family)
    yield (_RETURN, 0, 0, _REFUSE | _EAFNOSUPPORT)
    yield (_RETURN, 0, 0, _ALLOW)
