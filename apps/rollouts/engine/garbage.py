"""Memory of a process with thousands of loops: garbage collection settings, and returning freed memory."""

import asyncio
import ctypes
import gc
import resource
from contextlib import suppress
from functools import cache
from pathlib import Path

from apps.gym.calls.memory_budget import MIB, MemoryBudget

THRESHOLDS = (50_000, 20, 50)
"""Garbage collection thresholds of the three generations."""


@cache
def calm_collector() -> None:
    """Collect garbage less often, and exclude the objects of the program itself. Call it once per process.

    By default, Python collects after every 700 new objects. A rollout creates thousands, nearly all freed by reference
    counting, and a full collection visits every live object: this took a fifth of a worker's CPU.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


LOOK_SECONDS = 2.0
LOOKS_A_TRIM = 2
BURST = 64 * MIB
"""Freed bytes of large replies after which memory is returned to the operating system."""
KEPT = 16 * MIB
"""Memory above that of its start that a process keeps without trying to return it."""
_M_MMAP_THRESHOLD = -3


async def return_freed_memory(memory: MemoryBudget) -> None:
    """Run forever: return memory after large replies were freed.

    Background jobs use the same heap, so it is also trimmed while the process is much larger than at its start.
    """
    _keep_large_blocks_apart()
    small, looks = _resident_bytes() + KEPT, 0
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        looks += 1
        if memory.freed >= BURST:
            memory.freed = 0
            await asyncio.to_thread(_return_memory)
        elif looks % LOOKS_A_TRIM == 0 and _resident_bytes() > small:
            await asyncio.to_thread(_trim)


def _keep_large_blocks_apart() -> None:
    """Have glibc map blocks of 1 MiB or more separately, so that each is returned when freed.

    By default it stops doing so after the first few and keeps them in its heap.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, MIB)


def _resident_bytes() -> int:
    """Return the resident memory in bytes, or 0 if the system does not report it."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return 0


def _return_memory() -> None:
    gc.collect()
    _trim()


def _trim() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # only in glibc
        trim(0)
