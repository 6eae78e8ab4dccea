"""Memory of a process that holds thousands of loops: when garbage is collected, and how freed memory is returned."""

import asyncio
import ctypes
import gc
from functools import cache

from apps.gym.memory_budget import MIB, MemoryBudget

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
BURST = 64 * MIB
"""Bytes of large replies after which freed memory is returned to the operating system."""
_M_MMAP_THRESHOLD = -3


async def return_freed_memory(memory: MemoryBudget) -> None:
    """Return memory after large replies were freed, for ever."""
    _keep_large_blocks_apart()
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if memory.freed >= BURST:
            memory.freed = 0
            await asyncio.to_thread(_return_memory)


def _keep_large_blocks_apart() -> None:
    """Have glibc map blocks of 1 MiB and more on their own, so that each is returned when it is freed.

    By default it stops doing so after the first few, and keeps them in its heap.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, MIB)


def _return_memory() -> None:
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc alone has it
        trim(0)
