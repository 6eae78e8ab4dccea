"""Detect the format of a file from its first rows, and return the mapping that turns them into tasks."""

from collections import Counter
from collections.abc import Collection
from typing import Any

from apps.gym.image_data import COLUMNS as IMAGE_NAMES
from apps.gym.tasks.final_answers import after_hashes
from apps.gym.tasks.mappings.column_mapping import Mapping, parse_cell
from apps.gym.tasks.mappings.conversations import CONVERSATION_NAMES, is_sharegpt
from apps.gym.tasks.mappings.extractors import HASHES
from apps.gym.tasks.mappings.placed_images import looks_like_images
from apps.gym.tasks.materialised_tasks import is_materialised
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
"""Maps a prompt column's name to the columns that continue it."""
ID_NAMES = ("id", "uuid", "task_id", "external_id")
SPLIT_NAMES = ("split",)
TAG_NAMES = ("tags", "category", "categories", "subject")

SHAPES = {
    "nemo_gym": "NeMo Gym rows",
    "messages": "OpenAI messages",
    "sharegpt": "ShareGPT conversations",
    "verl": "verl rows",
    "tau2": "tau2 tasks",
    "prompt_answer": "prompt and answer",
    "unknown": "row format not recognised",
}


def find_shape(rows: list[dict[str, Any]], header: Collection[str] = ()) -> tuple[str, Mapping | None]:
    """Return the format of most rows and its mapping.

    The mapping is None if rows are tasks already, or the format is unknown.

    `header` names columns that may be empty in all of these rows.
    """
    shapes = [_shape_of(row) for row in rows]
    votes = Counter(shapes)
    shape = max(votes, key=lambda name: (votes[name], name != "unknown"), default="unknown")
    if shape in {"nemo_gym", "unknown"}:
        return shape, None
    # Ignore the columns of rows in another format.
    columns = _Columns([row for row, its in zip(rows, shapes, strict=True) if its == shape], header)
    return shape, _MAPPINGS[shape](columns)


def _shape_of(row: dict[str, Any]) -> str:
    if isinstance(row.get(PARAMS), dict) or is_materialised(row):
        return "nemo_gym"
    if isinstance(row.get("reward_model"), dict) and _is_prompt(row.get("prompt")):
        return "verl"
    if isinstance(row.get("user_scenario"), dict) and "evaluation_criteria" in row:
        return "tau2"
    held = [parse_cell(row.get(name)) for name in CONVERSATION_NAMES]
    if any(map(is_sharegpt, held)):
        return "sharegpt"
    if any(map(_is_messages, held)):
        return "messages"
    return "prompt_answer" if any(_is_prompt(row.get(name)) for name in PROMPT_NAMES) else "unknown"


def _is_messages(value: Any) -> bool:
    if isinstance(value, str):
        return value.lstrip().startswith("[{") and '"role"' in value
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict) and "role" in value[0]


def _is_prompt(value: Any) -> bool:
    return _is_messages(value) or (isinstance(value, str) and bool(value.strip()))


class _Columns:
    """Columns of the rows of one format, and how often each has a value."""

    def __init__(self, rows: list[dict[str, Any]], header: Collection[str]) -> None:
        self.rows = rows
        self.names = {*header, *(name for row in rows for name in row)}
        self.filled = Counter(name for row in rows for name, value in row.items() if is_filled(value))

    def first(self, wanted: Collection[str]) -> str:
        """Return the first name filled at least half as often as the most filled one, else the first that exists."""
        return _first(wanted, self.filled) or next((name for name in wanted if name in self.names), "")

    def is_text(self, name: str) -> bool:
        """Return True if the column exists and has only text values."""
        values = (row.get(name) for row in self.rows)
        return name in self.names and all(isinstance(value, str) for value in values if is_filled(value))

    @property
    def images(self) -> str:
        """Return the column with the images of the prompt, or an empty text. Rows with other values are rejected."""
        name = self.first(IMAGE_NAMES)
        filled = [row[name] for row in self.rows if is_filled(row.get(name))]
        return name if any(map(looks_like_images, filled)) else ""

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

    def extract(self, answer: str) -> dict[str, str]:
        """Return the extractor of the answer column if each of its texts has a derivation before `####`."""
        texts = [row[answer] for row in self.rows if is_filled(row.get(answer))]
        derived = bool(texts) and all(isinstance(text, str) and after_hashes(text) for text in texts)
        return {"expected_answer": HASHES} if derived else {}

    def system(self, prompt: str) -> str:
        """Return a template of the system column, unless prompts have a system message themselves."""
        has_one = self.is_text("system") and not any(_opens_with_system(row.get(prompt)) for row in self.rows)
        return "{system}" if has_one else ""


def _first(wanted: Collection[str], counts: Counter[str]) -> str:
    # At least half as often as the most frequent one, so that a single stray value does not select a column.
    most = max((counts[name] for name in wanted), default=0)
    return next((name for name in wanted if counts[name] and 2 * counts[name] >= most), "")


def is_filled(value: Any) -> bool:
    """Return True if a value is not empty."""
    return bool(value.strip()) if isinstance(value, str) else value is not None and value not in ([], {})


def _opens_with_system(value: Any) -> bool:
    messages = parse_cell(value)
    if is_sharegpt(messages):
        return bool(messages[0]["from"].lower() == "system")
    return _is_messages(messages) and messages[0]["role"] in {"system", "developer"}


def _messages_mapping(columns: _Columns) -> Mapping:
    name = columns.first(CONVERSATION_NAMES)
    return Mapping(
        input=name,
        images=columns.images,
        system=columns.system(name),
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
        images=columns.images,
        expected_answer="reward_model.ground_truth",
        external_id=marks["external_id"] or (_verl_id(columns, split) if "index" in extra else ""),
        split=split,
        tags=marks["tags"] or ("ability" if "ability" in columns.names else ""),
    )


def _verl_id(columns: _Columns, split: str) -> str:
    """Return an id template.

    Each split of each source is numbered from 0, so without a split a number is not unique.
    """
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
        images=columns.images,
        context=columns.first(context),
        system=columns.system(prompt),
        expected_answer=(answer := columns.first(ANSWER_NAMES)),
        extract=columns.extract(answer),
        tools=columns.tools,
        **columns.marks,
    )


def _tau2_mapping(columns: _Columns) -> Mapping:
    """Return a prompt without the user's request: the simulated user states it after the agent's first message."""
    return Mapping(user="Hello.", system="{policy}", **columns.marks)


_MAPPINGS = {
    "tau2": _tau2_mapping,
    "messages": _messages_mapping,
    "sharegpt": _messages_mapping,
    "verl": _verl_mapping,
    "prompt_answer": _prompt_mapping,
}
