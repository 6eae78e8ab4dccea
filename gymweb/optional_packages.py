"""Import packages without optional dependencies that GymWeb does not use, to save memory."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def left_out(*names: str) -> Iterator[None]:
    """Make modules look as if they were not installed. Modules that are already imported stay usable."""
    hidden = {name for name in names if name not in sys.modules}
    sys.modules |= dict.fromkeys(hidden)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
