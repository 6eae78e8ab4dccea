#!/bin/sh
# datasets 5.2.0: a column of the type Json changes numbers that a column of the type float64 keeps.
#
# Its values pass through ten decimals: 1/3 becomes another number, and small numbers become 0.
# Expected: Json() loads the numbers that the file contains, as Python's json does. Arguments of tool calls that a model
# is trained on, and rewards kept in a Json column, differ from the file. Output seen:
#
#     float64: 0.3333333333333333, 0.3, 1e-12; Json: 0.33333333330000003, 0.30000000000000004, 0.0
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
"${PYTHON:-python3.13}" -m venv "$folder"
"$folder/bin/pip" install --quiet datasets==5.2.0 pyarrow==26.0.1
HF_HOME=$folder HF_HUB_OFFLINE=1 "$folder/bin/python" -W ignore - "$folder/rows.jsonl" <<'END'
import json
import sys
from pathlib import Path

from datasets import Features, Json, Value, load_dataset

Path(sys.argv[1]).write_text("".join(json.dumps({"n": n}) + "\n" for n in (1 / 3, 0.3, 1e-12)))


def load(kind):
    rows = load_dataset("json", data_files=sys.argv[1], features=Features({"n": kind}), split="train")
    return ", ".join(str(row["n"]) for row in rows)


seen = f"float64: {load(Value('float64'))}; Json: {load(Json())}"
print(seen)
assert seen == "float64: 0.3333333333333333, 0.3, 1e-12; Json: 0.33333333330000003, 0.30000000000000004, 0.0"
END
