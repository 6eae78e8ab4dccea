"""Memory of a process that holds thousands of loops: when garbage is collected, and how freed memory is returned."""

import asyncio
import ctypes
import gc
import resource
from contextlib import suppress
from functools import cache
from pathlib import Path

from apps.gym.calls.memory_budget import MIB, MemoryBudget

THRESHOLDS = (50_000, 20, 50)
"""New objects before a look at the young ones; such looks before one at older ones, and those before a full one."""


@cache
def calm_collector() -> None:
    """Look for cycles less often, and never among what the program itself is made of. Once a process.

    The default looks after every 700 new objects. A rollout makes thousands, nearly all of them freed by reference
    counting, and a full look walks everything alive: that was a fifth of a worker's CPU.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


LOOK_SECONDS = 2.0
LOOKS_A_TRIM = 5
BURST = 64 * MIB
"""Bytes of large replies after which freed memory is returned to the operating system."""
_M_MMAP_THRESHOLD = -3


async def return_freed_memory(memory: MemoryBudget) -> None:
    """Return memory after large replies were freed, for ever.

    Background jobs use the same heap, so it is trimmed again while the process is larger than at its start.
    """
    _keep_large_blocks_apart()
    small, looks = _resident_bytes() + BURST, 0
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        looks += 1
        if memory.freed >= BURST:
            memory.freed = 0
            await asyncio.to_thread(_return_memory)
        elif looks % LOOKS_A_TRIM == 0 and _resident_bytes() > small:
            await asyncio.to_thread(_trim)


def _keep_large_blocks_apart() -> None:
    """Have glibc map blocks of 1 MiB and more on their own, so that each is returned when it is freed.

    By default it stops doing so after the first few, and keeps them in its heap.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, MIB)


def _resident_bytes() -> int:
    """0 where the system does not tell."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return 0


def _return_memory() -> None:
    gc.collect()
    _trim()


def _trim() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc alone has it
        trim(0)
