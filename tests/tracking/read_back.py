"""Programs that read files of trackers back with their packages, and calls of MLflow's API."""

import json
from typing import Any
from urllib.request import Request, urlopen

TENSORBOARD = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray
read = EventAccumulator(sys.argv[1], size_guidance={"tensors": 0}).Reload()
tags = read.Tags()["tensors"]
points = {tag: [[one.step, make_ndarray(one.tensor_proto).tolist()] for one in read.Tensors(tag)] for tag in tags}
print(json.dumps(points, default=bytes.decode))
"""
TRACKIO = """
import json, os, sys
os.environ["TRACKIO_DIR"] = sys.argv[1]
from trackio import Api
(run,) = Api().runs(sys.argv[2])
from trackio.sqlite_storage import SQLiteStorage
print(json.dumps([SQLiteStorage.get_logs(sys.argv[2], run.name, run_id=run.id), run.config], default=str))
"""
WANDB = """
import glob, json, struct, sys
from wandb.proto import wandb_internal_pb2 as pb
rows, config, summary = [], {}, {}
(path,) = glob.glob(sys.argv[1] + "/run-*.wandb")
data, at, parts = open(path, "rb").read(), 7, b""
assert data[:4] == b":W&B", data[:7]
while at + 7 <= len(data):
    if 32768 - at % 32768 < 7:
        at += 32768 - at % 32768
        continue
    _, size, kind = struct.unpack("<IHB", data[at : at + 7])
    parts += data[at + 7 : at + 7 + size]
    at += 7 + size
    if kind in (1, 4):
        record, parts = pb.Record.FromString(parts), b""
        if record.WhichOneof("record_type") == "history":
            rows.append({i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item})
        elif record.WhichOneof("record_type") == "run":
            config = {i.key: json.loads(i.value_json) for i in record.run.config.update}
            config["name"], config["notes"] = record.run.display_name, record.run.notes
        elif record.WhichOneof("record_type") == "summary":
            summary |= {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in record.summary.update}
print(json.dumps([rows, config, summary]))
"""


def mlflow(address: str, path: str, **body: Any) -> Any:
    """Return the reply of MLflow's API."""
    data = json.dumps(body).encode() if body else None
    with urlopen(Request(f"{address}/api/2.0/mlflow/{path}", data, {"Content-Type": "application/json"})) as reply:
        return json.load(reply)
