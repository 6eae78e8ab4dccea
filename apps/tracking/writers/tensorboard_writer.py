"""Write the event file of a run for TensorBoard.

The file is a function of the stored points, and replaces the previous one. It has the same beginning then, so that a
running TensorBoard continues to read it.
"""

import importlib
import io
from pathlib import Path
from typing import Any

VERSION = "brain.Event:2"


def write(request: dict[str, Any]) -> dict[str, Any]:
    """Write the file to `request["folder"]`."""
    folder = Path(request["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    stream = io.BytesIO()
    records = importlib.import_module("tensorboard.summary.writer.record_writer").RecordWriter(stream)
    for event in _events(request["batch"]):
        records.write(event.SerializeToString())
    # TensorBoard orders the files of a folder by name, and keeps the position in each.
    file = folder / f"events.out.tfevents.0000000000.{request['batch']['key']}"
    part = folder / f".{file.name}.part"
    part.write_bytes(stream.getvalue())
    part.replace(file)
    return {"run_id": request["batch"]["key"], "url": str(folder)}


def _events(batch: dict[str, Any]) -> Any:
    event_pb2 = importlib.import_module("tensorboard.compat.proto.event_pb2")
    started = batch["started_at"]
    yield event_pb2.Event(wall_time=started, file_version=VERSION)
    yield event_pb2.Event(wall_time=started, summary=_hyperparameters(batch))
    settings = list(batch["settings"].items())
    lines = [f"[Collection in GymWeb]({batch['link']})", "", _table(["setting", "value"], settings)]
    yield event_pb2.Event(wall_time=started, step=0, summary=_text("gymweb", "\n".join(lines)))
    for point in batch["points"]:
        if point["of_version"]:
            note = _text("by_version/model_version", point["version"] or "(none)")
            yield event_pb2.Event(wall_time=point["at"], step=point["step"], summary=note)
        yield event_pb2.Event(wall_time=point["at"], step=point["step"], summary=_scalars(point["values"]))
    if batch["samples"]:
        table = _table(batch["samples"]["columns"], batch["samples"]["rows"])
        yield event_pb2.Event(wall_time=batch["last_at"], step=batch["last_step"], summary=_text("samples", table))


def _scalars(values: dict[str, float]) -> Any:
    summary_pb2 = importlib.import_module("tensorboard.compat.proto.summary_pb2")
    tensor = importlib.import_module("tensorboard.util.tensor_util").make_tensor_proto
    metadata = importlib.import_module("tensorboard.plugins.scalar.metadata").create_summary_metadata
    # `simple_value` would round the figures to 32 bits.
    float64 = importlib.import_module("numpy").float64
    return summary_pb2.Summary(
        value=[
            summary_pb2.Summary.Value(tag=name, tensor=tensor(float64(value)), metadata=metadata("", ""))
            for name, value in values.items()
        ]
    )


def _hyperparameters(batch: dict[str, Any]) -> Any:
    """Return the settings for the page HParams. `tensorboard.plugins.hparams.summary` would need TensorFlow."""
    plugin_data = importlib.import_module("tensorboard.plugins.hparams.plugin_data_pb2")
    metadata = importlib.import_module("tensorboard.plugins.hparams.metadata")
    summary_pb2 = importlib.import_module("tensorboard.compat.proto.summary_pb2")
    session = plugin_data.SessionStartInfo(group_name=batch["key"], start_time_secs=batch["started_at"])
    for name, value in batch["settings"].items():
        if isinstance(value, bool):
            session.hparams[name].bool_value = value
        elif isinstance(value, int | float):
            session.hparams[name].number_value = value
        else:
            session.hparams[name].string_value = str(value)
    content = plugin_data.HParamsPluginData(session_start_info=session)
    described = metadata.create_summary_metadata(content)
    # Otherwise the order of the settings would differ between processes, and with it the beginning of the file.
    described.plugin_data.content = content.SerializeToString(deterministic=True)
    value = summary_pb2.Summary.Value(
        tag=metadata.SESSION_START_INFO_TAG, metadata=described, tensor=metadata.NULL_TENSOR
    )
    return summary_pb2.Summary(value=[value])


def _text(tag: str, text: str) -> Any:
    summary_pb2 = importlib.import_module("tensorboard.compat.proto.summary_pb2")
    tensor = importlib.import_module("tensorboard.util.tensor_util").make_tensor_proto
    metadata = importlib.import_module("tensorboard.plugins.text.metadata").create_summary_metadata
    value = summary_pb2.Summary.Value(tag=tag, tensor=tensor([text.encode()]), metadata=metadata("", ""))
    return summary_pb2.Summary(value=[value])


def _table(columns: list[str], rows: Any) -> str:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(_cell(value) for value in line)} |" for line in lines)


def _cell(value: Any) -> str:
    return ("" if value is None else str(value)).replace("|", "\\|").replace("\n", "<br>")
