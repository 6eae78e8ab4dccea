#!/usr/bin/env python
"""Train the compression dictionary of trace payloads on attempts at the tasks of the built-in environments.

`python -m scripts.train_trace_dictionary --number 1` writes `apps/rollouts/trace_dictionaries/1.zdict`. Players take
the model's part, and their replies get ids, token counts and settings in the form of real endpoints. Stored payloads
name their dictionary by number: keep all dictionaries, and give a new one a new number.

`--measure` trains on nine tenths of the attempts, and prints the size and time of compressing the others.
"""

import argparse
import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from apps.gym.environments.kits import KITS
from apps.gym.environments.task_generation import Player, generate_tasks
from apps.gym.loop.trials.players import play_at_random, play_attempt
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.traces.events import ModelCall, TraceUnion, encode_event
from apps.gym.traces.items import Item

FOLDER = Path(__file__).resolve().parents[1] / "apps" / "rollouts" / "trace_dictionaries"
DICTIONARY_BYTES = 64 * 1024
TASKS = 120
"""Attempts of each player in each environment."""
LEVEL = 3
_MODELS = ("gpt-4.1-mini", "Qwen/Qwen3-8B", "meta-llama/Llama-3.1-8B-Instruct", "policy")
_SAMPLING = (
    {"temperature": 1.0},
    {"temperature": 0.7, "top_p": 0.95, "max_output_tokens": 4096},
    {"temperature": 1.0, "top_p": 1.0, "max_output_tokens": 2048},
)


def play_all(tasks: int) -> Iterator[list[TraceUnion]]:
    """Yield the events of attempts: one player solves the tasks, others guess or make random calls."""
    for name, kit in sorted(KITS.items()):
        server = InProcessServer(name, name=name)
        players: list[Player] = [kit.solve, play_at_random, *([kit.guess] if kit.guess else [])]
        for seed, row in enumerate(generate_tasks(kit, count=tasks, seed=1)):
            for player in players:
                yield asyncio.run(play_attempt(server, row, player, seed=seed, max_steps=kit.max_steps))


def dress(events: list[TraceUnion], dice: random.Random) -> list[TraceUnion]:
    """Return the events as an endpoint would have made them: with ids, token counts, settings and times."""
    model, sampling = dice.choice(_MODELS), {**dice.choice(_SAMPLING), "seed": dice.getrandbits(31)}
    at = 0.0
    dressed: list[TraceUnion] = []
    for event in events:
        reply = _from_endpoint(event, model, sampling, dice) if isinstance(event, ModelCall) else event
        dressed.append(_with_times(reply, at, dice))
        at += dressed[-1].duration
    return dressed


def _from_endpoint(call: ModelCall, model: str, sampling: dict[str, Any], dice: random.Random) -> ModelCall:
    return msgspec.structs.replace(
        call,
        items=[_with_ids(item, dice) for item in call.items],
        model=model,
        version=dice.choice(["", model]),
        response_id=f"{dice.choice(['resp_', 'chatcmpl-'])}{_hex(dice)}",
        usage={
            "input_tokens": dice.randint(50, 4000),
            "output_tokens": dice.randint(5, 900),
            "reasoning_tokens": 0,
            "cached_tokens": 16 * dice.randint(0, 99),
        },
        sampling=sampling,
    )


def _with_times(event: TraceUnion, at: float, dice: random.Random) -> TraceUnion:
    duration = dice.lognormvariate(0, 1) if isinstance(event, ModelCall) else dice.random() / 1000
    timed: TraceUnion = msgspec.structs.replace(event, at=at, duration=duration)
    return timed


def _with_ids(item: Item, dice: random.Random) -> Item:
    if item.get("type") == "function_call":
        return {**item, "call_id": f"call_{_hex(dice)}", "id": f"fc_{_hex(dice)}", "status": "completed"}
    text = item.get("content", "")
    if not isinstance(text, str):
        return {**item, "id": f"msg_{_hex(dice)}", "status": "completed"}
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": f"msg_{_hex(dice)}", "role": "assistant", "status": "completed", "content": [part]}


def _hex(dice: random.Random) -> str:
    return f"{dice.getrandbits(128):032x}"


def train(payloads: list[bytes | bytearray | memoryview]) -> bytes:
    trained: bytes = zstandard.train_dictionary(DICTIONARY_BYTES, payloads, level=LEVEL).as_bytes()
    return trained


def measure(attempts: list[list[Any]], trained: bytes) -> None:
    held_out = [payload for attempt in attempts[::10] for payload in attempt]
    dictionary = zstandard.ZstdCompressionDict(trained)
    for level in (1, 3, 6, 9):
        dictionary.precompute_compress(level=level)
        packer = zstandard.ZstdCompressor(
            level=level, dict_data=dictionary, write_dict_id=False, write_checksum=False, write_content_size=True
        )
        began = time.process_time()
        packed = [packer.compress(payload) for payload in held_out]
        took = (time.process_time() - began) / len(held_out) * 1e6
        unpacker = zstandard.ZstdDecompressor(dict_data=dictionary)
        began = time.process_time()
        for each in packed:
            unpacker.decompress(each)
        back = (time.process_time() - began) / len(held_out) * 1e6
        before, after = (sum(map(len, each)) / len(held_out) for each in (held_out, packed))
        print(
            f"level {level}: {len(held_out)} payloads, {before:.0f} → {after:.0f} bytes, {after / before:.1%}, "
            f"{took:.1f} µs to pack, {back:.1f} µs to unpack"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--measure", action="store_true")
    options = parser.parse_args()
    dice = random.Random(1)
    attempts = [[encode_event(event).encode() for event in dress(events, dice)] for events in play_all(options.tasks)]
    if options.measure:
        measure(attempts, train([each for place, one in enumerate(attempts) if place % 10 for each in one]))
        return
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{options.number}.zdict"
    path.write_bytes(train([payload for attempt in attempts for payload in attempt]))
    print(f"{path}: {path.stat().st_size:,} bytes from {len(attempts):,} attempts")


if __name__ == "__main__":
    main()
