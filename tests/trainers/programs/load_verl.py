"""In the environment of verl: write what its dataset for SFT makes of a file of `verl_sft`.

`load_verl.py TEMPLATE CLASS FILE OUT` writes a JSON object. `rows` has for each row its messages and tools, the text of
its tokens, the texts that are trained, and the text of the whole conversation as the tokenizer renders it. `refused`
has the numbers of the rows that verl refuses with its own rendering of single messages, and `passed` those that its
setting `ignore_input_ids_mismatch` then lets pass.
"""

import importlib.util
import json
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

from byte_tokenizer import make_tokenizer
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

SETTINGS = {"pad_mode": "no_padding", "max_length": 1_000_000, "truncation": "error"}


def fails(dataset: Any, number: int) -> bool:
    try:
        dataset[number]
    except (AssertionError, ValueError):
        return True
    return False


if __name__ == "__main__":
    template, written, file, out = map(Path, sys.argv[1:])
    spec = importlib.util.spec_from_file_location("json_sft_dataset", written)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tokenizer = make_tokenizer(template.read_text(encoding="utf-8"))

    class Plain(module.JsonSFTDataset):  # type: ignore[name-defined]
        _process_single_message = MultiTurnSFTDataset._process_single_message

    def text(ids: Any) -> str:
        return tokenizer.decode(ids)

    rows = []
    dataset = module.JsonSFTDataset(str(file), tokenizer, SETTINGS)
    for number, (messages, tools) in enumerate(zip(dataset.messages, dataset.tools, strict=True)):
        made = dataset[number]
        ids, mask = made["input_ids"].tolist(), made["loss_mask"].tolist()
        runs = groupby(zip(ids, mask, strict=True), lambda one: one[1])
        rows.append(
            {
                "messages": messages,
                "tools": tools,
                "text": text(ids),
                "trained": [text([one for one, _ in run]) for learned, run in runs if learned],
                "whole": tokenizer.apply_chat_template(messages, tools=tools, tokenize=False),
            }
        )
    plain = Plain(str(file), tokenizer, SETTINGS)
    lenient = Plain(str(file), tokenizer, {**SETTINGS, "ignore_input_ids_mismatch": True})
    refused = [number for number in range(len(plain)) if fails(plain, number)]
    passed = [number for number in range(len(lenient)) if not fails(lenient, number)]
    out.write_text(json.dumps({"rows": rows, "refused": refused, "passed": passed}), encoding="utf-8")
