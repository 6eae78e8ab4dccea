#!/bin/sh
# llamafactory 0.9.5: rows of the formatting `openai` get the system text "detailed thinking off", whatever the model.
#
# It is a switch of one family of models. The converter adds it to each conversation without tools, also after a system
# text of the row; it appears nowhere in the settings of the data set.
# Expected: the system text of the row, as with the formatting `sharegpt`. Output seen:
#
#     without a system text: 'detailed thinking off'; with one: 'Be brief.\ndetailed thinking off'
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
turns = [{"role": "user", "content": "6 * 7?"}, {"role": "assistant", "content": "42"}]
without = convert({"messages": turns})["_system"]
beside = convert({"messages": [{"role": "system", "content": "Be brief."}, *turns]})["_system"]
seen = f"without a system text: {without!r}; with one: {beside!r}"
print(seen)
assert seen == r"without a system text: 'detailed thinking off'; with one: 'Be brief.\ndetailed thinking off'"
END
