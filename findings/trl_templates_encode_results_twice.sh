#!/bin/sh
# trl 1.16.0: its templates of Llama 3.1 and gpt-oss encode a tool's result once more.
#
# A result that is JSON text, as most tools return it, becomes a JSON string with escaped quotes.
# Expected: the text of the result, as with Qwen's templates. A server with another template shows the model another
# text of the same result than the trainer does. Output seen:
#
#     qwen3: {"sum": 3}; llama3_1: "{\"sum\": 3}"; gptoss: "{\"sum\": 3}"
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
"${PYTHON:-python3.13}" -m venv "$folder"
"$folder/bin/pip" install --quiet transformers==5.23.0 jinja2==3.1.6
"$folder/bin/pip" install --quiet --no-deps trl==1.16.0
"$folder/bin/python" -W ignore - 2>"$folder/log" <<'END'
from importlib.metadata import files

from transformers.utils.chat_template_utils import render_jinja_template

call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
messages = [
    {"role": "user", "content": "Add."},
    {"role": "assistant", "content": "", "tool_calls": [call]},
    {"role": "tool", "tool_call_id": "c1", "name": "add", "content": '{"sum": 3}'},
]
found = []
for family in ("qwen3", "llama3_1", "gptoss"):
    (path,) = (file for file in files("trl") if file.match(f"chat_templates/{family}.jinja"))
    (text,), _ = render_jinja_template([messages], chat_template=path.locate().read_text(), bos_token="")
    (line,) = (line for line in text.replace("<|", "\n<|").replace("|>", "|>\n").splitlines() if "sum" in line)
    found.append(f"{family}: {line}")
seen = "; ".join(found)
print(seen)
assert seen == r'qwen3: {"sum": 3}; llama3_1: "{\"sum\": 3}"; gptoss: "{\"sum\": 3}"'
END
