#!/bin/sh
# datasets 5.2.0: a JSON file's column that is declared as text gets times that the file does not contain.
#
# If all values of a block (10 MB) look like dates, pyarrow reads them as times, and datasets writes these as text.
# Expected: features={"due": Value("string")} loads the texts of the file. An answer "2024-01-01" then no longer equals
# the expected one, and a time loses its zone. Output seen:
#
#     2024-01-01 -> 2024-01-01 00:00:00; 2024-01-01T05:00:00Z -> 2024-01-01 05:00:00; beside another text: 2024-01-01
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
"${PYTHON:-python3.13}" -m venv "$folder"
"$folder/bin/pip" install --quiet datasets==5.2.0 pyarrow==26.0.1
HF_HOME=$folder HF_HUB_OFFLINE=1 "$folder/bin/python" -W ignore - "$folder" <<'END'
import json
import sys
from pathlib import Path

from datasets import Features, Value, load_dataset


def load(*texts):
    file = Path(sys.argv[1]) / f"{len(texts)}_{len(texts[0])}.jsonl"
    file.write_text("".join(json.dumps({"due": text}) + "\n" for text in texts))
    features = Features({"due": Value("string")})
    return load_dataset("json", data_files=str(file), features=features, split="train")[0]["due"]


day, time = "2024-01-01", "2024-01-01T05:00:00Z"
seen = f"{day} -> {load(day)}; {time} -> {load(time)}; beside another text: {load(day, 'soon')}"
print(seen)
assert seen == (
    "2024-01-01 -> 2024-01-01 00:00:00; 2024-01-01T05:00:00Z -> 2024-01-01 05:00:00; beside another text: 2024-01-01"
)
END
