#!/bin/sh
# trl 1.16.0: its template of gpt-oss writes only the first of two parallel calls, and the second result under its name.
#
# The rendered history has one call of `add` and two results of `add`; the call of `multiply` is missing, without an error.
# Expected: both calls, or an error, as with the template of Llama 3.1. The model learns that an unasked result follows.
# Output seen:
#
#     calls: functions.add; results: functions.add 'three', functions.add 'forty-two'
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
"${PYTHON:-python3.13}" -m venv "$folder"
"$folder/bin/pip" install --quiet transformers==5.23.0 jinja2==3.1.6
"$folder/bin/pip" install --quiet --no-deps trl==1.16.0
"$folder/bin/python" -W ignore - 2>"$folder/log" <<'END'
import json
import re
from importlib.metadata import files

from transformers.utils.chat_template_utils import render_jinja_template

(path,) = (file for file in files("trl") if file.match("chat_templates/gptoss.jinja"))
results = {"add": "three", "multiply": "forty-two"}
calls = [
    {"id": name, "type": "function", "function": {"name": name, "arguments": {"a": number}}}
    for number, name in enumerate(results)
]
messages = [
    {"role": "user", "content": "Add and multiply."},
    {"role": "assistant", "content": "", "tool_calls": calls},
    *({"role": "tool", "tool_call_id": name, "name": name, "content": text} for name, text in results.items()),
]
(text,), _ = render_jinja_template([messages], chat_template=path.locate().read_text())
called = re.findall(r"<\|start\|>assistant to=(\S+?)<", text)
answered = re.findall(r"<\|start\|>(\S+?) to=assistant.*?<\|message\|>(.*?)<", text)
shown = ", ".join(f"{name} {json.loads(result)!r}" for name, result in answered)
seen = f"calls: {', '.join(called)}; results: {shown}"
print(seen)
assert seen == "calls: functions.add; results: functions.add 'three', functions.add 'forty-two'"
END
