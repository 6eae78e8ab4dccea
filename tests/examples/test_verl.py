"""The dataset class for verl reads what the export writes. verl itself is not installed: its base class is stood in for
by one that reads Parquet through pandas' own rules, which is what the class is for."""

import importlib.util
import json
import sys
from itertools import groupby
from pathlib import Path
from types import ModuleType

import orjson
import pyarrow.parquet as pq
import pytest

from apps.exports.parquet_files import ParquetFile
from apps.gym.exporters.protocol import resolve_options
from apps.gym.exporters.registry import FORMATS
from tests.gym.exporters.attempts import NESTED, attempt, paris

ROOT = Path(__file__).parents[2]


class Frame:
    """A table of columns, as much of one as the class asks for."""

    def __init__(self, columns):
        self.columns = columns

    def reset_index(self, *, drop):
        assert drop
        return Frame(dict(self.columns))

    def __getitem__(self, name):
        return Column(self.columns[name])

    def __setitem__(self, name, values):
        self.columns[name] = list(values)


class Column(list):
    def astype(self, kind):
        assert kind is object
        return self


class ReadsParquet:
    messages_key, tools_key = "messages", "tools"

    def __init__(self, path):
        self.path = path
        self._read_files_and_process()

    def _read_files_and_process(self):
        self.dataframe = Frame(pq.read_table(self.path).to_pydict())
        self.messages = self.dataframe["messages"]
        self.tools = self.dataframe["tools"]

    def _process_single_message(self, index, message, full_message, tools=None, enable_thinking=None):
        ids = render(self.tokenizer, messages=[message], tools=tools)["input_ids"][0]
        ids = ids[len(self.system_prompt) :] if index else ids
        return ids, Ids([int(message["role"] == "assistant")] * len(ids)), Ids([1] * len(ids)), {}

    system_prompt = "<S>"
    tokenizer, processor, apply_chat_template_kwargs = "tokenizer", None, {}


def render(tokenizer, *, messages, tools, **_):
    """As Qwen's templates: a default system prompt, and results that share one message."""
    assert tokenizer == "tokenizer"
    text = "<S>"
    for role, run in groupby(messages, lambda one: one["role"]):
        content = "".join(f"({one['content']})" for one in run)
        text += f"<{role}>{content}</>"
    return {"input_ids": [Ids(map(ord, text))], "attention_mask": [Ids([1] * len(text))]}


class Ids(list):
    """As much of a tensor as the class asks for."""

    def __getitem__(self, key):
        return Ids(super().__getitem__(key))

    def __mul__(self, factor):
        return Ids(one * factor for one in self)


@pytest.fixture
def dataset_class(monkeypatch):
    for name in ("verl", "verl.utils", "verl.utils.dataset", "verl.utils.dataset.multiturn_sft_dataset"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    base = sys.modules["verl.utils.dataset.multiturn_sft_dataset"]
    base.MultiTurnSFTDataset, base.apply_chat_template = ReadsParquet, render
    spec = importlib.util.spec_from_file_location("json_sft_dataset", ROOT / "examples/verl/json_sft_dataset.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.JsonSFTDataset


def test_the_rows_come_back_as_they_went_out(dataset_class, tmp_path):
    format = FORMATS["verl_sft"]
    options = resolve_options(format, {})
    without = paris()
    without[0].tools = []
    rows = [row for events in (paris(), without) for row in format.rows(attempt(events), options)]
    file = ParquetFile(tmp_path / "train.parquet", split="train", features=format.features(options))
    written = [{**row, "rollout_id": 1} for row in rows]
    file.write(written, [orjson.dumps(row) for row in written])
    file.finish()
    read = dataset_class(file.path)
    assert read.messages == [json.loads(row["messages"]) for row in rows]
    assert read.dataframe["messages"] == read.messages
    assert read.tools == [NESTED, None]


@pytest.mark.parametrize("results", [1, 2, 3])
def test_the_results_of_parallel_calls_are_rendered_together(dataset_class, results):
    dataset = dataset_class.__new__(dataset_class)
    roles = ["user", "assistant", *["tool"] * results, "assistant", "tool", "assistant"]
    messages = [{"role": role, "content": str(number)} for number, role in enumerate(roles)]
    parts = [dataset._process_single_message(place, one, messages) for place, one in enumerate(messages)]
    ids, loss, attention = ([one for part in parts for one in part[kind]] for kind in range(3))
    assert ids == render("tokenizer", messages=messages, tools=None)["input_ids"][0]
    assert attention == [1] * len(ids)
    trained = "".join(chr(one) for one, learned in zip(ids, loss, strict=True) if learned)
    assert trained == "".join(f"<assistant>({number})</>" for number, role in enumerate(roles) if role == "assistant")
