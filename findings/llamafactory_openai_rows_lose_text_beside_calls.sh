#!/bin/sh
# llamafactory 0.9.5: rows of the formatting `openai` lose the text that an assistant message has beside its tool calls.
#
# The converter replaces the content of a message by its calls, for every template, without an error.
# Expected: text and calls, as chat completions allow, and as the templates of Qwen render. The model learns to call
# tools without the thoughts that it wrote first. Output seen:
#
#     roles: user function observation; "I add first." in the turn with the call: no
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
call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
turns = [
    {"role": "user", "content": "1 + 2?"},
    {"role": "assistant", "content": "I add first.", "tool_calls": [call]},
    {"role": "tool", "tool_call_id": "c1", "content": "3"},
    {"role": "assistant", "content": "It is 3."},
]
prompt = convert({"messages": turns})["_prompt"]
kept = "yes" if "I add first." in str(prompt) else "no"
seen = f"roles: {' '.join(turn['role'] for turn in prompt)}; \"I add first.\" in the turn with the call: {kept}"
print(seen)
assert seen == "roles: user function observation; \"I add first.\" in the turn with the call: no"
END
