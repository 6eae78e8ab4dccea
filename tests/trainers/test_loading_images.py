"""Exports with images are loaded by `datasets`, and TRL puts their images into the messages in order."""

import json
from pathlib import Path
from typing import Any

import pytest

from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.gym.traces.events import ToolResult
from tests.factories import make_collection, make_rollout
from tests.gym.traces import call, said, trace, turn
from tests.images import make_png, png_url
from tests.trainers.conftest import Program


@pytest.mark.django_db
def test_images_are_loaded_in_order(run_program: Program, settings: Any, tmp_path: Path) -> None:
    settings.EXPORTS_DIR = tmp_path
    one, two = ({"type": "input_image", "image_url": png_url(shade=shade)} for shade in (1, 2))
    events = trace(
        turn(call("{}", "c1"), finish_reason="tool_calls"),
        ToolResult(call_id="c1", name="get_weather", output=[two, {"type": "input_text", "text": "closer"}]),
        turn(said("A dot.")),
        prompt=[{"role": "user", "content": [one, {"type": "input_text", "text": "What is it?"}]}],
    )
    collection = make_collection()
    make_rollout(collection, trace=events)
    folders = {}
    for slug in ("trl_sft", "verl_sft", "llama_factory_sft"):
        order = ExportOrder(format=slug, collection=collection, options={"images": "column"})
        folders[slug] = Path(write_export(export=queue_export(order)).path)
    out = tmp_path / "rows.json"
    run_program("load_images.py", out, *folders.values())
    found = json.loads(out.read_text())
    images = [make_png(shade=shade).hex() for shade in (1, 2)]
    rows = {slug: found[folder.name][0] for slug, folder in folders.items()}
    assert [row["images"] for row in rows.values()] == [images] * 3
    assert rows["trl_sft"]["placed"] == images
    assert [turn["value"] for turn in rows["llama_factory_sft"]["conversations"]][::2] == [
        "<image>\nWhat is it?",
        "<image>\ncloser",
    ]
