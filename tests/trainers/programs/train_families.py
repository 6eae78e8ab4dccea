"""In the trainers' environment: write the texts that TRL's trainers make of exports with the templates of families.

`train_families.py JOBS OUT` reads a JSON list of jobs, `{"name", "family", "trainer", "folder"}`, and writes a JSON
object: for each job the rows as its trainer tokenized them. The template of the family is the one that TRL ships. The
tokenizer is a stand-in: it knows bytes, and all special tokens that the template names.
"""

import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import trl
from byte_tokenizer import make_tokenizer
from train_exports import Bench, make_models

NAMED = {
    "qwen": {"eos_token": "<|im_end|>"},
    "llama": {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
    "gptoss": {"bos_token": "<|startoftext|>", "eos_token": "<|return|>"},
    "deepseek": {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"},
}
SPECIAL = re.compile(r"<[|｜][^<>|｜\s'\"]+[|｜]>|</?think>")


class FamilyBench(Bench):
    def __init__(self, folder: Path, family: str) -> None:
        template = (Path(trl.__file__).parent / "chat_templates" / f"{family}.jinja").read_text()
        named = next(tokens for start, tokens in NAMED.items() if family.startswith(start))
        special = dict.fromkeys(["<|endoftext|>", *named.values(), *SPECIAL.findall(template)])
        self.folder = folder
        self.tokenizer = make_tokenizer(template, tuple(special), **named)
        self.models = make_models(folder, self.tokenizer)

    def train(self, trainer: Any, as_row: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        """Only read the rows that would be trained on."""
        trainer.train = lambda: None
        return super().train(trainer, as_row)


if __name__ == "__main__":
    torch.set_num_threads(1)
    jobs, out = map(Path, sys.argv[1:])
    found = {}
    with tempfile.TemporaryDirectory() as made:
        benches: dict[str, FamilyBench] = {}
        for job in json.loads(jobs.read_text()):
            family = job["family"]
            if family not in benches:
                (folder := Path(made) / family).mkdir()
                benches[family] = FamilyBench(folder, family)
            found[job["name"]] = benches[family].run({"streaming": False, "settings": {}, **job})["rows"]
    out.write_text(json.dumps(found))
