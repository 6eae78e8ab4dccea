"""The stored rollouts of the shared folder, and small rows of the same shape."""

import os
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
import pytest

from apps.rollouts.imports.task_matching import File

SHARED = Path(os.environ.get("GYMWEB_SHARED", "../shared")) / "data" / "nemo_gym"
NAMES = sorted(path.name.partition(".")[0] for path in SHARED.glob("*.example_rollouts.jsonl"))

needs_shared = pytest.mark.skipif(not NAMES, reason="the shared folder of NeMo Gym rows is not there")


def shared_files(name: str) -> list[File]:
    paths = [SHARED / f"{name}.example_rollouts.jsonl", SHARED / f"{name}.example.jsonl"]
    return [File(path.name, BytesIO(path.read_bytes())) for path in paths]


def shared_rows(name: str) -> list[dict[str, Any]]:
    path = SHARED / f"{name}.example_rollouts.jsonl"
    return [orjson.loads(line) for line in path.read_bytes().splitlines() if line.strip()]


def as_file(*rows: Any, name: str = "rollouts.jsonl") -> File:
    """A file of these rows; bytes stand as they are."""
    lines = [row if isinstance(row, bytes) else orjson.dumps(row) for row in rows]
    return File(name, BytesIO(b"".join(line + b"\n" for line in lines)))


def said(text: str, **fields: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [part], **fields}


def stored_row(
    question: str = "What is 2 + 2?", answer: str = "4", reward: float = 1.0, **fields: Any
) -> dict[str, Any]:
    """A rollout row of one turn that says `answer`."""
    return {
        "responses_create_params": {"input": [{"role": "user", "content": question}]},
        "response": {"id": "resp_1", "model": "stored-model", "object": "response", "output": [said(answer)]},
        "reward": reward,
        "expected_answer": "4",
        **fields,
    }
