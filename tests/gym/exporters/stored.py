"""Stored rollout rows as traces, so that exporters meet real conversations."""

import json
import os
from pathlib import Path
from typing import Any

from apps.gym.traces.events import EnvironmentTurn, ModelCall, Prompt, SessionOpened, TraceUnion
from apps.gym.traces.items import Item, input_items, item_type

SHARED = Path(os.environ.get("GYMWEB_SHARED", Path(__file__).resolve().parents[4] / "shared"))
SAMPLES = SHARED / "design" / "export_samples"
STORED = sorted((SHARED / "data" / "nemo_gym").glob("*.example_rollouts.jsonl"))


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def trace_of(stored: dict[str, Any]) -> list[TraceUnion]:
    """A turn is a stretch of items by the model: in these files nothing else stands between two turns."""
    params = stored["responses_create_params"]
    events: list[TraceUnion] = [
        SessionOpened(environment="stored", tools=params.get("tools") or []),
        Prompt(items=input_items(stored)),
    ]
    stretch: list[Item] = []
    by_the_model = False
    for item in [*stored["response"]["output"], None]:
        speaks = item is not None and (
            item_type(item) in {"reasoning", "function_call"} or item.get("role") == "assistant"
        )
        if stretch and (item is None or speaks != by_the_model):
            turn = ModelCall(seen=0, items=stretch) if by_the_model else EnvironmentTurn(items=stretch)
            events.append(turn)
            stretch = []
        if item is not None:
            stretch.append(item)
        by_the_model = speaks
    return events
