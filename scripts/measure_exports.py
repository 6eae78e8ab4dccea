"""Measure the export of a million rollouts with traces: rows per second, and memory.

`python -m scripts.measure_exports [--rollouts 1000000] [--traced 1.0]` fills a PostgreSQL database
(scripts/fill_rollouts.py) and writes each export in a process of its own. One JSON object per line. The exit status is
1 if memory grew by 150 MB or more, or if fewer than 5,000 rows per second were written; on a busy machine, per CPU
second of writer and database, which take turns.

FORMAT:ENCODING:shapes checks the rows against a chat template. It may take 1.5 times as long as the export without a
check before it. FORMAT:ENCODING:every_row renders every row, at least 1,500 per second. `--template` is a .jinja file
to check against, for example that of gpt-oss in TRL.
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
ASKED_BY_CHECK = {"": ASKED_ROWS_PER_SECOND, "shapes": 0, "every_row": 1_500}
ALLOWED_TIMES = 1.5
TEMPLATE = """{%- if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}"""
EXPORTS = [
    "trl_sft:parquet",
    "nemo_gym_rollouts:jsonl",
    "trl_sft:jsonl",
    "trl_sft:jsonl:shapes",
    "trl_sft:jsonl:every_row",
]
ALL_TASKS: dict[str, Any] = {"splits": []}
EVERYTHING: dict[str, Any] = {**ALL_TASKS, "include_flagged": True, "include_truncated": True}
WARM_UP_ROWS = 2_000


def write_one(format: str, encoding: str, check: str, collection: int, template: str) -> dict[str, Any]:
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
    checked: dict[str, Any] = {"template": template, "every_row": check == "every_row"} if check else {}
    whole = ExportOrder(format=format, collection=planned, encoding=encoding, filters=everything, **checked)
    export = queue_export(whole)
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
        "check": check,
        "rendered": written.manifest.get("template_check", {}).get("rendered", 0),
        "considered": written.considered,
        "rows": written.rows,
        "mb": round(written.bytes / MB),
        "seconds": round(memory.seconds, 1),
        "writer_cpu_s": round(cpu, 1),
        "rows_per_s": round(written.rows / memory.seconds),
        "growth_mb": memory.growth_mb,
    }


def measure_exports(ground: Ground, exports: list[str], template: str) -> bool:
    """Return True if all exports were within their budgets."""
    within, plain = True, 0.0
    for one in exports:
        before = cpu_seconds(*ground.servers)
        format, encoding, check = (*one.split(":"), "")[:3]
        figures = in_own_process(write_one, format, encoding, check, ground.filled.large, template)
        if ground.servers:
            figures["database_cpu_s"] = round(cpu_seconds(*ground.servers) - before, 1)
        by_cpu = round(figures["rows"] / (figures["writer_cpu_s"] + figures.get("database_cpu_s", 0.0)))
        speed = max(figures["rows_per_s"], by_cpu) if is_busy() and ground.servers else figures["rows_per_s"]
        plain = plain if check else figures["seconds"]
        if check and plain:
            figures["times_plain"] = round(figures["seconds"] / plain, 2)
        in_time = check != "shapes" or figures.get("times_plain", 0.0) <= ALLOWED_TIMES
        fine = in_time and speed >= ASKED_BY_CHECK[check] and figures["growth_mb"] < ALLOWED_GROWTH_MB
        within = within and fine
        say("export", **figures, rows_per_cpu_s=by_cpu, load=machine_load(), within=fine)
    return within


def main() -> None:
    parser = parse_ground(__doc__, traced=1.0)
    parser.add_argument("--exports", nargs="+", default=EXPORTS, metavar="FORMAT:ENCODING[:CHECK]")
    parser.add_argument("--template", type=Path, help="default: one like Qwen's")
    options = vars(parser.parse_args())
    exports, path = options.pop("exports"), options.pop("template")
    with filled_ground(**options) as ground:
        within = measure_exports(ground, exports, path.read_text() if path else TEMPLATE)
    say("exports", within=within)
    sys.exit(not within)


if __name__ == "__main__":
    main()
