"""Which of the field's shapes a file's rows have, by the first of them, and the mapping that makes tasks of them."""

from collections import Counter
from collections.abc import Collection
from typing import Any

from apps.gym.tasks.mappings.column_mapping import Mapping, parse_cell
from apps.gym.tasks.parameters import PARAMS

PROMPT_NAMES = ("prompt", "question", "problem", "instruction", "query", "input", "task")
ANSWER_NAMES = (
    "expected_answer", "answer", "ground_truth", "solution", "target", "label", "reference_answer", "output",
    "response", "completion",
)  # fmt: skip
CONTEXT_NAMES = {
    "instruction": ("input", "context"),
    "question": ("context",),
    "query": ("context",),
}
"""Of a prompt so named, the columns that go on with it."""
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


def find_shape(rows: list[dict[str, Any]], header: Collection[str] = ()) -> tuple[str, Mapping | None]:
    """The shape that most of the rows have, and its mapping; None where rows are tasks already, or nothing is known.

    `header` names columns that may be empty in all of these rows.
    """
    shapes = [_shape_of(row) for row in rows]
    votes = Counter(shapes)
    shape = max(votes, key=lambda name: (votes[name], name != "unknown"), default="unknown")
    if shape in {"nemo_gym", "unknown"}:
        return shape, None
    # The columns of a stray row of another shape are none of this one.
    columns = _Columns([row for row, its in zip(rows, shapes, strict=True) if its == shape], header)
    return shape, _MAPPINGS[shape](columns)


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


class _Columns:
    """What the rows of one shape have, and how often something stands there."""

    def __init__(self, rows: list[dict[str, Any]], header: Collection[str]) -> None:
        self.rows = rows
        self.names = {*header, *(name for row in rows for name in row)}
        self.filled = Counter(name for row in rows for name, value in row.items() if is_filled(value))

    def first(self, wanted: Collection[str]) -> str:
        """The first of these names that is filled about as often as any of them; else the first that is there."""
        return _first(wanted, self.filled) or next((name for name in wanted if name in self.names), "")

    def is_text(self, name: str) -> bool:
        """Whether the column is there and nothing but text stands in it, if anything."""
        values = (row.get(name) for row in self.rows)
        return name in self.names and all(isinstance(value, str) for value in values if is_filled(value))

    @property
    def marks(self) -> dict[str, Any]:
        return {
            "external_id": self.first(ID_NAMES),
            "split": self.first(SPLIT_NAMES),
            "tags": self.first(TAG_NAMES),
        }

    @property
    def tools(self) -> str:
        return "tools" if "tools" in self.names else ""

    def system(self, prompt: str) -> str:
        """A template of the column of that name, unless the prompts have such a message themselves."""
        has_one = self.is_text("system") and not any(_opens_with_system(row.get(prompt)) for row in self.rows)
        return "{system}" if has_one else ""


def _first(wanted: Collection[str], counts: Counter[str]) -> str:
    # Half as often is often enough: one stray value does not make a column the one that is meant.
    most = max((counts[name] for name in wanted), default=0)
    return next((name for name in wanted if counts[name] and 2 * counts[name] >= most), "")


def is_filled(value: Any) -> bool:
    """Whether something stands there."""
    return bool(value.strip()) if isinstance(value, str) else value is not None and value not in ([], {})


def _opens_with_system(value: Any) -> bool:
    messages = parse_cell(value)
    return _is_messages(messages) and messages[0]["role"] in {"system", "developer"}


def _messages_mapping(columns: _Columns) -> Mapping:
    return Mapping(
        input="messages",
        system=columns.system("messages"),
        expected_answer=columns.first(ANSWER_NAMES),
        tools=columns.tools,
        cut_answer=True,
        **columns.marks,
    )


def _verl_mapping(columns: _Columns) -> Mapping:
    extra: set[str] = {name for row in columns.rows for name in _extra(row)}
    marks = columns.marks
    split = marks["split"] or ("extra_info.split" if "split" in extra else "")
    return Mapping(
        input="prompt",
        expected_answer="reward_model.ground_truth",
        external_id=marks["external_id"] or (_verl_id(columns, split) if "index" in extra else ""),
        split=split,
        tags=marks["tags"] or ("ability" if "ability" in columns.names else ""),
    )


def _verl_id(columns: _Columns, split: str) -> str:
    """A template: every split of every source is numbered from 0. Without a split, a number is nobody's own."""
    source = "{data_source}/" if columns.filled["data_source"] else ""
    return f"{source}{{{split}}}/{{extra_info.index}}" if split else ""


def _extra(row: dict[str, Any]) -> dict[str, Any]:
    extra = row.get("extra_info")
    return extra if isinstance(extra, dict) else {}


def _prompt_mapping(columns: _Columns) -> Mapping:
    prompt = _first(PROMPT_NAMES, Counter(name for row in columns.rows for name in row if _is_prompt(row[name])))
    is_text = not any(_is_messages(row.get(prompt)) for row in columns.rows)
    context = [name for name in CONTEXT_NAMES.get(prompt, ()) if is_text and columns.is_text(name)]
    return Mapping(
        input=prompt,
        context=columns.first(context),
        system=columns.system(prompt),
        expected_answer=columns.first(ANSWER_NAMES),
        tools=columns.tools,
        **columns.marks,
    )


_MAPPINGS = {"messages": _messages_mapping, "verl": _verl_mapping, "prompt_answer": _prompt_mapping}
