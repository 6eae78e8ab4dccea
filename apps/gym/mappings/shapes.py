"""Which of the field's shapes a file's rows have, by the first of them, and the mapping that makes tasks of them."""

from typing import Any

from apps.gym.mappings.columns import Mapping
from apps.gym.params import PARAMS

PROMPT_NAMES = ("prompt", "question", "problem", "instruction", "query", "input", "task")
ANSWER_NAMES = (
    "expected_answer", "answer", "ground_truth", "solution", "target", "label", "reference_answer", "output",
    "response", "completion",
)  # fmt: skip
ID_NAMES = ("id", "uuid", "task_id", "external_id")
SPLIT_NAMES = ("split",)
TAG_NAMES = ("tags", "category", "categories", "subject")

SHAPES = {
    "nemo_gym": "NeMo Gym rows",
    "messages": "OpenAI messages",
    "verl": "verl rows",
    "prompt_answer": "prompt and answer",
    "unknown": "an unknown shape",
}


def find_shape(rows: list[dict[str, Any]]) -> tuple[str, Mapping | None]:
    """The shape that most of the rows have, and its mapping; None where rows are tasks already, or nothing is known."""
    votes: dict[str, int] = {}
    for row in rows:
        shape = _shape_of(row)
        votes[shape] = votes.get(shape, 0) + 1
    shape = max(votes, key=lambda name: (votes[name], name != "unknown"), default="unknown")
    if shape in {"nemo_gym", "unknown"}:
        return shape, None
    names = {name for row in rows for name, value in row.items() if value is not None}
    return shape, _MAPPINGS[shape](names, rows)


def _shape_of(row: dict[str, Any]) -> str:
    if isinstance(row.get(PARAMS), dict):
        return "nemo_gym"
    if isinstance(row.get("reward_model"), dict) and _is_prompt(row.get("prompt")):
        return "verl"
    if _is_messages(row.get("messages")):
        return "messages"
    if any(_is_prompt(row.get(name)) for name in PROMPT_NAMES):
        return "prompt_answer"
    return "unknown"


def _is_messages(value: Any) -> bool:
    if isinstance(value, str):
        return value.lstrip().startswith("[{") and '"role"' in value
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict) and "role" in value[0]


def _is_prompt(value: Any) -> bool:
    return _is_messages(value) or (isinstance(value, str) and bool(value.strip()))


def _messages_mapping(names: set[str], rows: list[dict[str, Any]]) -> Mapping:
    return Mapping(
        input="messages",
        expected_answer=_first(ANSWER_NAMES, names),
        tools="tools" if "tools" in names else "",
        cut_answer=True,
        **_marks(names),
    )


def _verl_mapping(names: set[str], rows: list[dict[str, Any]]) -> Mapping:
    extra: set[str] = {name for row in rows for name in _extra(row)}
    marks = _marks(names)
    return Mapping(
        input="prompt",
        expected_answer="reward_model.ground_truth",
        external_id=marks["external_id"] or ("extra_info.index" if "index" in extra else ""),
        split=marks["split"] or ("extra_info.split" if "split" in extra else ""),
        tags=marks["tags"] or ("ability" if "ability" in names else ""),
    )


def _extra(row: dict[str, Any]) -> dict[str, Any]:
    extra = row.get("extra_info")
    return extra if isinstance(extra, dict) else {}


def _prompt_mapping(names: set[str], rows: list[dict[str, Any]]) -> Mapping:
    prompt = next(name for name in PROMPT_NAMES if any(_is_prompt(row.get(name)) for row in rows))
    answer = _first(ANSWER_NAMES, names - {prompt})
    return Mapping(
        input=prompt,
        system="{system}" if all(isinstance(row.get("system"), str) and row["system"] for row in rows) else "",
        expected_answer=answer,
        tools="tools" if "tools" in names else "",
        **_marks(names),
    )


def _marks(names: set[str]) -> dict[str, Any]:
    return {
        "external_id": _first(ID_NAMES, names),
        "split": _first(SPLIT_NAMES, names),
        "tags": _first(TAG_NAMES, names),
    }


def _first(wanted: tuple[str, ...], names: set[str]) -> str:
    return next((name for name in wanted if name in names), "")


_MAPPINGS = {"messages": _messages_mapping, "verl": _verl_mapping, "prompt_answer": _prompt_mapping}
