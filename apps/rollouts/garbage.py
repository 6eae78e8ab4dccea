"""Python's garbage collector, set for a process that holds thousands of loops."""

import gc
from functools import cache

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
