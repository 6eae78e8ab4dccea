"""Measure the export of a million rollouts with traces: rows per second, and memory.

`python -m scripts.measure_exports [--rollouts 1000000] [--traced 1.0]` fills a PostgreSQL database
(scripts/fill_rollouts.py) and writes each export in a process of its own. One JSON object per line. The exit status is
1 if memory grew by 150 MB or more, or if fewer than 5,000 rows per second were written; on a busy machine, per CPU
second of writer and database, which take turns.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scripts.measured_server import Memory
from scripts.measuring import (
    ALLOWED_GROWTH_MB,
    MB,
    Ground,
    filled_ground,
    in_own_process,
    is_busy,
    machine_load,
    parse_ground,
    say,
)
from scripts.process_figures import cpu_seconds

ASKED_ROWS_PER_SECOND = 5_000
EXPORTS = ["trl_sft:jsonl", "trl_sft:parquet", "nemo_gym_rollouts:jsonl"]
ALL_TASKS: dict[str, Any] = {"splits": []}
EVERYTHING: dict[str, Any] = {**ALL_TASKS, "include_flagged": True, "include_truncated": True}
WARM_UP_ROWS = 2_000


def write_one(format: str, encoding: str, collection: int) -> dict[str, Any]:
    """Return the figures of one export in this process. A small export before it triggers all imports."""
    import django

    django.setup()
    from apps.exports.export_jobs import write_export
    from apps.exports.export_orders import ExportOrder, queue_export
    from apps.gym.exporters.registry import FORMATS
    from apps.rollouts.models import Collection

    any_reward = {"min_reward": -1e9} if FORMATS[format].row_kind == "demonstrations" else {}
    planned = Collection.objects.get(pk=collection)
    # Tasks are exported whatever the outcome of their attempts.
    everything = ALL_TASKS if FORMATS[format].row_kind == "tasks" else {**EVERYTHING, **any_reward}
    small = {**everything, "max_rows": WARM_UP_ROWS}
    warm_up = queue_export(ExportOrder(format=format, collection=planned, encoding=encoding, filters=small))
    export = queue_export(ExportOrder(format=format, collection=planned, encoding=encoding, filters=everything))
    with tempfile.TemporaryDirectory(prefix="gymweb-exports-") as folder:
        write_export(export=warm_up, path=Path(folder) / "warm-up")
        with Memory() as memory:
            cpu = time.process_time()
            written = write_export(export=export, path=Path(folder) / "export")
            cpu = time.process_time() - cpu
    assert written.state == "ready", written.message
    return {
        "format": format,
        "encoding": encoding,
        "considered": written.considered,
        "rows": written.rows,
        "mb": round(written.bytes / MB),
        "seconds": round(memory.seconds, 1),
        "writer_cpu_s": round(cpu, 1),
        "rows_per_s": round(written.rows / memory.seconds),
        "growth_mb": memory.growth_mb,
    }


def measure_exports(ground: Ground, exports: list[str]) -> bool:
    """Return True if all exports were within their budgets."""
    within = True
    for one in exports:
        before = cpu_seconds(*ground.servers)
        format, _, encoding = one.partition(":")
        figures = in_own_process(write_one, format, encoding, ground.filled.large)
        if ground.servers:
            figures["database_cpu_s"] = round(cpu_seconds(*ground.servers) - before, 1)
        by_cpu = round(figures["rows"] / (figures["writer_cpu_s"] + figures.get("database_cpu_s", 0.0)))
        speed = max(figures["rows_per_s"], by_cpu) if is_busy() and ground.servers else figures["rows_per_s"]
        fine = speed >= ASKED_ROWS_PER_SECOND and figures["growth_mb"] < ALLOWED_GROWTH_MB
        within = within and fine
        say("export", **figures, rows_per_cpu_s=by_cpu, load=machine_load(), within=fine)
    return within


def main() -> None:
    parser = parse_ground(__doc__, traced=1.0)
    parser.add_argument("--exports", nargs="+", default=EXPORTS, metavar="FORMAT:ENCODING")
    options = vars(parser.parse_args())
    exports = options.pop("exports")
    with filled_ground(**options) as ground:
        within = measure_exports(ground, exports)
    say("exports", within=within)
    sys.exit(not within)


if __name__ == "__main__":
    main()
