#!/bin/sh
# datasets 5.2.0: a column whose values are texts in some rows and lists in others loads the text "007" as the number 7.
#
# Without declared features, such a column gets the type Json, which decodes texts that are JSON themselves.
# Expected: texts stay texts, as in columns that contain only texts. A leading zero of an answer is lost, and one row
# with a list changes all the other rows. Output seen:
#
#     texts only: '007', '1.0', 'null'; with a list: 7, 1.0, None
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

from datasets import load_dataset

texts = ["007", "1.0", "null"]


def load(values):
    file = Path(sys.argv[1]) / f"{len(values)}.jsonl"
    file.write_text("".join(json.dumps({"answer": value}) + "\n" for value in values))
    rows = load_dataset("json", data_files=str(file), split="train")
    return ", ".join(repr(row["answer"]) for row in list(rows)[:3])


seen = f"texts only: {load(texts)}; with a list: {load([*texts, ['a', 'b']])}"
print(seen)
assert seen == "texts only: '007', '1.0', 'null'; with a list: 7, 1.0, None"
END
