#!/bin/sh
# llamafactory 0.9.5: rows of the formatting `openai` join the results of parallel calls by tags of Qwen, for all models.
#
# The converter, which does not know the template, writes the tags as text into one message.
# Expected: one message for each result, in the form of the template. With templates of Llama 3, DeepSeek or gpt-oss, the
# model sees </tool_response> inside a result. Output seen:
#
#     messages of results: 1; content: '3\n</tool_response>\n<tool_response>\n42'
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
"${PYTHON:-python3.13}" -m venv "$folder"
"$folder/bin/pip" install --quiet torch==2.13.0 peft==0.18.1 transformers==5.6.0 datasets==4.0.0
# Its other requirements are for its web interface, and for images and sounds.
"$folder/bin/pip" install --quiet --no-deps llamafactory==0.9.5
HF_HOME=$folder HF_HUB_OFFLINE=1 "$folder/bin/python" -W ignore - 2>"$folder/log" <<'END'
import importlib
import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

# The package's other modules need those requirements.
data = sys.modules["llamafactory.data"] = ModuleType("llamafactory.data")
data.__path__ = [f"{find_spec('llamafactory').submodule_search_locations[0]}/data"]
OpenAIDatasetConverter = importlib.import_module("llamafactory.data.converter").OpenAIDatasetConverter
DatasetAttr = importlib.import_module("llamafactory.data.parser").DatasetAttr

tags = {"role_tag": "role", "content_tag": "content", "system_tag": "system"}
tags |= {"user_tag": "user", "assistant_tag": "assistant", "observation_tag": "tool"}
rows = DatasetAttr("file", "rows")
rows.join({"formatting": "openai", "columns": {"messages": "messages", "tools": "tools"}, "tags": tags})
convert = OpenAIDatasetConverter(rows, SimpleNamespace(media_dir="."))
names = ("add", "multiply")
calls = [{"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}} for name in names]
turns = [
    {"role": "user", "content": "1 + 2? 6 * 7?"},
    {"role": "assistant", "content": "", "tool_calls": calls},
    {"role": "tool", "tool_call_id": "add", "content": "3"},
    {"role": "tool", "tool_call_id": "multiply", "content": "42"},
    {"role": "assistant", "content": "3 and 42."},
]
results = [turn["content"] for turn in convert({"messages": turns})["_prompt"] if turn["role"] == "observation"]
seen = f"messages of results: {len(results)}; content: {results[0]!r}"
print(seen)
assert seen == r"messages of results: 1; content: '3\n</tool_response>\n<tool_response>\n42'"
END
