"""In the trainers' environment: load folders of exports with images, and fill in the images as TRL does.

`load_images.py OUT FOLDER…` writes to OUT a JSON object: for each folder, by its name, the rows with the images in
hexadecimal, and for conversations the order in which TRL puts the images into the messages.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from datasets import Image, List, load_dataset
from trl.data_utils import prepare_multimodal_messages


def load(folder: Path) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as cache:
        rows = load_dataset(str(folder), cache_dir=cache)["train"]
        assert rows.features["images"] == List(Image())
        rows = rows.cast_column("images", List(Image(decode=False)))
        return [describe(row) for row in rows]


def describe(row: dict[str, Any]) -> dict[str, Any]:
    images = [image["bytes"].hex() for image in row["images"]]
    if not isinstance(row.get("messages"), list):
        return {**row, "images": images}
    filled = prepare_multimodal_messages(row["messages"], images=images)
    placed = [part["image"] for message in filled for part in message["content"] if part["type"] == "image"]
    return {**row, "images": images, "placed": placed}


if __name__ == "__main__":
    out, *folders = map(Path, sys.argv[1:])
    out.write_text(json.dumps({folder.name: load(folder) for folder in folders}))
