"""In the environment of verifiers: write the tasks of a taskset, found by its loader in the folder of an export.

`load_taskset.py FOLDER OUT` writes a JSON object: the tasks of each split.
"""

import json
import sys
from pathlib import Path

from verifiers.v1.utils.loaders import load_taskset, taskset_config_type

if __name__ == "__main__":
    folder, out = sys.argv[1:]
    sys.path.insert(0, folder)
    config = taskset_config_type("gymweb_tasks")
    found = {
        split: [one.data.model_dump(mode="json") for one in load_taskset(config(id="gymweb_tasks", split=split))]
        for split in ("train", "validation")
    }
    Path(out).write_text(json.dumps(found), encoding="utf-8")
