"""Where recorded exchanges lie, on machines that have them beside the repository."""

import os
from pathlib import Path

SHARED = Path(os.environ.get("GYMWEB_SHARED", Path(__file__).resolve().parents[3].parent / "shared"))
