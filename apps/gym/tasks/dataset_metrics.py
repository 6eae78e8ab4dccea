"""Compute the statistics of a dataset in one pass and constant memory.

They cover examples, tools, words, turns, temperature and all other fields, as `gym dataset collate` counts them (NeMo
Gym, nemo_gym/train_data_utils.py). A field may hold numbers in one row and texts in the next; both are counted, whereas
the original fails.
"""

import json
import math
from collections import Counter
from hashlib import blake2b
from heapq import heappush, heappushpop
from typing import Any

from apps.gym.storable import clean_line
from apps.gym.traces.items import TaskRow, input_items

PARAMS = "responses_create_params"
NOT_FIELDS = {PARAMS, "response"}
MAX_FIELDS = 200
MAX_NAME = 200
MAX_MARKS = 1000
EXACT_UNIQUE = 1024


class Spread:
    """Count, mean, minimum, maximum and sample standard deviation of numbers (Welford's method)."""

    def __init__(self) -> None:
        self.count = 0
        self._mean = self._squares = 0.0
        self._least, self._largest = math.inf, -math.inf

    def add(self, value: float) -> None:
        self.count += 1
        delta = value - self._mean
        self._mean += delta / self.count
        self._squares += delta * (value - self._mean)
        self._least, self._largest = min(self._least, value), max(self._largest, value)

    def figures(self) -> dict[str, float | None]:
        std = math.sqrt(self._squares / (self.count - 1)) if self.count > 1 else 0.0
        figures = {"mean": self._mean, "min": self._least, "max": self._largest, "std": std}
        # Numbers near the maximum of floats have no finite deviation, which JSON cannot express.
        return {
            "count": self.count,
            **{name: value if self.count and math.isfinite(value) else None for name, value in figures.items()},
        }


class Distinct:
    """Number of different texts: exact up to 1,024, then estimated from the smallest hashes (within a few per cent)."""

    def __init__(self) -> None:
        self.total = 0
        self._kept: set[int] = set()
        self._largest_first: list[int] = []

    def add(self, text: str) -> None:
        self.total += 1
        mark = int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
        if mark in self._kept:
            return
        if len(self._kept) < EXACT_UNIQUE:
            self._kept.add(mark)
            heappush(self._largest_first, -mark)
        elif mark < -self._largest_first[0]:
            self._kept.add(mark)
            self._kept.discard(-heappushpop(self._largest_first, -mark))

    def figures(self) -> dict[str, int | bool]:
        exact = len(self._kept) < EXACT_UNIQUE
        unique = len(self._kept) if exact else round((EXACT_UNIQUE - 1) * 2**64 / -self._largest_first[0])
        return {"unique": min(unique, self.total), "total": self.total, "exact": exact}


class Field:
    """Statistics of one field. Each member of a list counts."""

    def __init__(self) -> None:
        self.rows = self.nulls = self.others = 0
        self.numbers, self.texts = Spread(), Distinct()

    def add(self, value: Any) -> None:
        self.rows += 1
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, int | float):
                self._add_number(one)
            elif isinstance(one, str):
                self.texts.add(one)
            elif one is None:
                self.nulls += 1
            else:
                self.others += 1

    def _add_number(self, number: float) -> None:
        try:
            self.numbers.add(float(number))
        except OverflowError:
            self.others += 1  # an integer with more than 308 digits

    def figures(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "numbers": self.numbers.figures() if self.numbers.count else None,
            "texts": self.texts.figures() if self.texts.total else None,
            "nulls": self.nulls,
            "others": self.others,
        }


class DatasetMetrics:
    """Statistics of rows that are added one by one. `figures` returns them as JSON."""

    def __init__(self) -> None:
        self.examples = 0
        self.tools, self.words, self.turns, self.temperature = Spread(), Spread(), Spread(), Spread()
        self.row_bytes = Spread()
        self.fields: dict[str, Field] = {}
        self.fields_left_out = 0
        self.splits: Counter[str] = Counter()
        self.tags: Counter[str] = Counter()

    def add(self, row: TaskRow, *, size: int, split: str = "", tags: tuple[str, ...] = ()) -> None:
        """Add a task row. `size` is its bytes as JSON; `split` and `tags` are its marks."""
        self.examples += 1
        self.row_bytes.add(size)
        params = row[PARAMS]
        if params.get("tools") is not None:
            self.tools.add(len(params["tools"]))
        turns = sum(item.get("role") == "user" for item in input_items(row))
        if turns:
            self.turns.add(turns)
        if params.get("temperature") is not None:
            self.temperature.add(float(params["temperature"]))
        self.words.add(len(json.dumps(params).split()))
        for name, value in row.items():
            if name not in NOT_FIELDS:
                self._field(name, value)
        if split:
            self._count(self.splits, split)
        for tag in tags:
            self._count(self.tags, tag)

    def _field(self, name: str, value: Any) -> None:
        name = clean_line(name, MAX_NAME)
        field = self.fields.get(name)
        if field is None:
            if len(self.fields) >= MAX_FIELDS:
                self.fields_left_out += 1
                return
            field = self.fields[name] = Field()
        field.add(value)

    def _count(self, counter: Counter[str], name: str) -> None:
        if name in counter or len(counter) < MAX_MARKS:
            counter[name] += 1

    def figures(self) -> dict[str, Any]:
        return {
            "examples": self.examples,
            "tools": self.tools.figures(),
            "words": self.words.figures(),
            "turns": self.turns.figures(),
            "temperature": self.temperature.figures(),
            "row_bytes": self.row_bytes.figures(),
            "fields": {name: field.figures() for name, field in self.fields.items()},
            "fields_left_out": self.fields_left_out,
            "splits": dict(self.splits.most_common()),
            "tags": dict(self.tags.most_common()),
        }


def as_nemo_gym(figures: dict[str, Any]) -> dict[str, Any]:
    """Return the figures in the form in which NeMo Gym writes them beside a dataset.

    A mixed field has those of its most frequent type.
    """
    answer: dict[str, Any] = {
        "Number of examples": figures["examples"],
        "Number of tools": _spread(figures["tools"]),
        "Json-dumped number of words (proxy for token count)": _spread(figures["words"]),
        "Number of turns": _spread(figures["turns"]),
        "Temperature": _spread(figures["temperature"]),
    }
    for name, field in figures["fields"].items():
        numbers, texts = field["numbers"], field["texts"]
        if numbers and (not texts or numbers["count"] >= texts["total"]):
            answer.setdefault(name, _spread(numbers))
        elif texts:
            answer.setdefault(name, {"unique_count": texts["unique"], "total_count": texts["total"]})
    return answer


def _spread(figures: dict[str, Any]) -> dict[str, Any]:
    named = {"Average": "mean", "Min": "min", "Max": "max", "Standard deviation": "std"}
    values = {name: figures[key] or 0.0 for name, key in named.items()}
    return {
        "Total # non-null values": figures["count"],
        **{name: round(value, 2 if abs(value) >= 1 else 3) for name, value in values.items()},
    }
