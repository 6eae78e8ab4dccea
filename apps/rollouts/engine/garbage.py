"""Memory of a process with thousands of agent loops: tune garbage collection, and return freed memory to the system."""

import asyncio
import ctypes
import gc
import resource
from contextlib import suppress
from functools import cache
from pathlib import Path

from apps.gym.calls.memory_budget import MIB, MemoryBudget

THRESHOLDS = (50_000, 20, 50)
"""Thresholds of the three generations, for `gc.set_threshold`."""


@cache
def tune_garbage_collection() -> None:
    """Collect garbage less often, and ignore objects created at startup. Call it once per process.

    A rollout creates thousands of objects, nearly all freed by reference counting. With the default threshold of 700,
    full collections, which visit every live object, took a fifth of a worker's CPU time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


CHECK_SECONDS = 2.0
CHECKS_PER_TRIM = 2
BURST = 64 * MIB
"""Freed bytes of large replies after which memory is returned to the system at once."""
TOLERATED_GROWTH = 16 * MIB
"""Memory growth since the start, in bytes, above which memory is returned even without a burst."""
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8


async def return_freed_memory(memory: MemoryBudget) -> None:
    """Return memory to the system after large replies were freed. Runs forever.

    Background jobs share the heap, so memory is also returned while the process is much larger than at its start.
    """
    _tune_allocator()
    size_limit, checks = _resident_bytes() + TOLERATED_GROWTH, 0
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        checks += 1
        if memory.freed >= BURST:
            memory.freed = 0
            await asyncio.to_thread(_return_memory)
        elif checks % CHECKS_PER_TRIM == 0 and _resident_bytes() > size_limit:
            await asyncio.to_thread(_trim)


def _tune_allocator() -> None:
    """Keep the memory of the process small.

    Blocks of 1 MiB or more are allocated with mmap, so that freeing one returns it to the system. By default, glibc
    raises this threshold after the first large blocks are freed, and then keeps them in its heap.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, MIB)
        # One heap for all threads: the interpreter runs one at a time, and each further heap takes memory.
        mallopt(_M_ARENA_MAX, 1)


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
