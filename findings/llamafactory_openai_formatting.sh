#!/bin/sh
# llamafactory 0.9.5: the formatting `openai` changes conversations silently, whatever the template.
#
# Its converter does not know the template. It adds "detailed thinking off", a switch of one family of models, to the
# system text of conversations without tools; replaces the text of a message with calls by the calls; and joins the
# results of parallel calls by tags of Qwen. The model is trained with a system text that no row has, without the
# thoughts before its calls, and, in other families, with </tool_response> inside a result.
# Expected: the same conversation as with the formatting `sharegpt`. Output seen:
#
#     system text: 'Be brief.\ndetailed thinking off'
#     text beside calls: no
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
opening = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 2? 6 * 7?"}]
answer = {"role": "assistant", "content": "3 and 42."}
turns = [
    *opening,
    {"role": "assistant", "content": "I add first.", "tool_calls": calls},
    {"role": "tool", "tool_call_id": "add", "content": "3"},
    {"role": "tool", "tool_call_id": "multiply", "content": "42"},
    answer,
]
prompt = convert({"messages": turns})["_prompt"]
results = [turn["content"] for turn in prompt if turn["role"] == "observation"]
seen = [
    f"system text: {convert({'messages': [*opening, answer]})['_system']!r}",
    f"text beside calls: {'yes' if 'I add first.' in str(prompt) else 'no'}",
    f"messages of results: {len(results)}; content: {results[0]!r}",
]
print(*seen, sep="\n")
assert seen == [
    r"system text: 'Be brief.\ndetailed thinking off'",
    "text beside calls: no",
    r"messages of results: 1; content: '3\n</tool_response>\n<tool_response>\n42'",
]
END
