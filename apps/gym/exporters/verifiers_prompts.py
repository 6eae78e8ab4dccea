"""Tasks for the library verifiers, which prime-rl trains on: rows, and a taskset that loads them."""

import json
from collections.abc import Iterator, Mapping

from apps.gym.exporters.dataset_columns import as_text
from apps.gym.exporters.protocol import Format, Options, Row, TaskPrompt
from apps.gym.exporters.training_conversations import (
    OPENINGS,
    ground_truth,
    question_messages,
    task_columns,
    verifier_fields,
)
from apps.gym.traces.messages import nested_tools

_TASKSET = '''"""Tasks of GymWeb as a taskset for verifiers 0.4 and later: `PYTHONPATH=. vf-eval gymweb_tasks`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import verifiers.v1 as vf

FILES = {files}


class GymWebConfig(vf.TasksetConfig):
    split: str = "train"


class GymWebData(vf.TaskData):
    answer: str
    info: dict[str, Any]
    """The verifier's fields, statistics of the attempts, and the tools."""
    environment: str


class GymWebTask(vf.Task[GymWebData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def correct(self, trace: vf.Trace) -> float:
        raise NotImplementedError("Score the trace here: compare it with self.data.answer and self.data.info.")


class GymWebTaskset(vf.Taskset[GymWebTask, GymWebConfig]):
    def load(self) -> Iterator[GymWebTask]:
        with (Path(__file__).parent / FILES[self.config.split]).open(encoding="utf-8") as rows:
            for line in rows:
                row = json.loads(line)
                info = json.loads(row["info"])
                data = GymWebData(
                    id=info["task_id"], prompt=row["prompt"], answer=row["answer"], info=info, environment=row["task"]
                )
                yield GymWebTask(data, self.config.task)


__all__ = ["GymWebTaskset"]
'''


def prompt_rows(task: TaskPrompt, options: Options) -> Iterator[Row]:
    # `info` is text, because rows have different fields; the taskset parses it.
    info = {**verifier_fields(task.task), **task_columns(task), "tools": nested_tools(task.tools)}
    yield {
        "prompt": question_messages(task, options),
        "answer": ground_truth(task.task),
        "info": as_text(info),
        "task": task.environment,
    }


def taskset(files: Mapping[str, str], options: Options) -> dict[str, str]:
    """Return the module that loads the rows. It reads JSON lines only."""
    if any(name.endswith(".parquet") for name in files.values()):
        return {}
    return {"gymweb_tasks.py": _TASKSET.replace("{files}", json.dumps(dict(files)))}


FORMATS = [
    Format(
        slug="verifiers_prompts",
        title="verifiers and prime-rl, prompts",
        trainer="verifiers",
        row_kind="tasks",
        rows=prompt_rows,
        features=lambda _: {"prompt": "json[]", "answer": "string", "info": "string", "task": "string"},
        choices={"opening": OPENINGS},
        encodings=("jsonl", "parquet"),
        note="With JSON lines, `gymweb_tasks.py` is a taskset for verifiers 0.4 and later. Write its reward first: it "
        "has no verifier of GymWeb. `info` is JSON text with the verifier's fields and the tools.",
        companions=taskset,
    ),
]
