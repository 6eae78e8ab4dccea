"""In the trainers' environment: run TRL's trainers for two steps each on exports, and write down what they trained on.

`train_exports.py JOBS OUT` reads a JSON list of jobs, `{"name", "trainer", "folder", "streaming", "settings"}`, and
writes a JSON object: for each job its steps, its losses and its rows as the loss sees them. The model is a tiny one
with random weights, and its tokenizer knows bytes alone, so that no text is beyond it.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}

import torch
from byte_tokenizer import make_tokenizer
from datasets import Features, Value, load_dataset
from transformers import (
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForSequenceClassification,
    set_seed,
)
from trl import (
    DPOConfig,
    DPOTrainer,
    GRPOConfig,
    GRPOTrainer,
    KTOConfig,
    KTOTrainer,
    RewardConfig,
    RewardTrainer,
    SFTConfig,
    SFTTrainer,
)
from trl.data_utils import apply_chat_template
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

STEPS = 2


def make_models(folder: Path, tokenizer: PreTrainedTokenizerFast) -> dict[str, str]:
    """The folders of a model that writes and of one that scores."""
    set_seed(9)
    config = Qwen3Config(
        vocab_size=max(288, len(tokenizer)), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, max_position_embeddings=16384, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, num_labels=1,
    )  # fmt: skip
    found = {}
    for name, kind in {"writes": Qwen3ForCausalLM, "scores": Qwen3ForSequenceClassification}.items():
        kind(config).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        found[name] = str(folder / name)
    return found


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokenizer = make_tokenizer()
        self.models = make_models(folder, self.tokenizer)

    def common(self, **more: Any) -> dict[str, Any]:
        return {
            "output_dir": str(self.folder / "out"), "max_steps": STEPS, "per_device_train_batch_size": 2,
            "use_cpu": True, "bf16": False, "report_to": "none", "save_strategy": "no", "logging_steps": 1,
            "disable_tqdm": True, "seed": 9, "learning_rate": 1e-3, **more,
        }  # fmt: skip

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        data = load_dataset(
            job["folder"], split="train", streaming=job["streaming"], cache_dir=str(self.folder / "cache")
        )
        found: dict[str, Any] = getattr(self, job["trainer"])(data, job)
        return found

    def sft(self, data: Any, job: dict[str, Any]) -> dict[str, Any]:
        trainer = SFTTrainer(
            model=self.models["writes"],
            args=SFTConfig(**self.common(**{"max_length": None, **job["settings"]})),
            train_dataset=data,
            processing_class=self.tokenizer,
        )
        return self.train(trainer, self.sft_row)

    def sft_row(self, batch: dict[str, Any]) -> dict[str, Any]:
        ids, labels = batch["input_ids"][0].tolist(), batch["labels"][0].tolist()
        assert [one for one, label in zip(ids, labels, strict=True) if label not in {-100, one}] == []
        return {"ids": ids, "text": self.tokenizer.decode(ids), "trained": self.spans(ids, [x != -100 for x in labels])}

    def dpo(self, data: Any, job: dict[str, Any]) -> dict[str, Any]:
        trainer = DPOTrainer(
            model=self.models["writes"],
            args=DPOConfig(**self.common(**{"max_length": None, **job["settings"]})),
            train_dataset=data,
            processing_class=self.tokenizer,
        )
        return self.train(trainer, self.dpo_row)

    def dpo_row(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The collator puts the chosen ones first, then the rejected ones."""
        sides = {}
        for place, side in enumerate(("chosen", "rejected")):
            length = int(batch["attention_mask"][place].sum())
            ids, mask = (batch[name][place].tolist()[:length] for name in ("input_ids", "completion_mask"))
            sides[side] = {"text": self.tokenizer.decode(ids), "trained": self.spans(ids, mask)}
        return sides

    def orpo(self, data: Any, job: dict[str, Any], *, trainer: Any = ORPOTrainer, config: Any = ORPOConfig) -> Any:
        """A job may ask to render conversations first, as the documentation shows."""
        if job.get("rendered"):
            text = Features({name: Value("string") for name in ("prompt", "chosen", "rejected")})
            ids = data["pair_id"]
            data = data.map(
                lambda row: apply_chat_template(
                    {side: row[side] for side in text}, self.tokenizer, row["tools"] or None
                ),
                remove_columns=data.column_names,
                features=text,
            ).add_column("pair_id", ids)
        made = trainer(
            model=self.models["writes"],
            args=config(**self.common(**{"max_length": 100_000, **job["settings"]})),
            train_dataset=data,
            processing_class=self.tokenizer,
        )
        rows = [{"pair_id": row["pair_id"], **self.orpo_row(row)} for row in made.train_dataset]
        made.train()
        return {**self.report(made), "rows": rows}

    def orpo_row(self, row: dict[str, Any]) -> dict[str, Any]:
        """A side is tokenized before it is collated."""
        sides = {}
        for side in ("chosen", "rejected"):
            ids, labels = row[f"{side}_input_ids"], row[f"{side}_labels"]
            learned = [label != -100 for label in labels]
            sides[side] = {"text": self.tokenizer.decode(ids), "trained": self.spans(ids, learned)}
        return sides

    def cpo(self, data: Any, job: dict[str, Any]) -> Any:
        return self.orpo(data, job, trainer=CPOTrainer, config=CPOConfig)

    def kto(self, data: Any, job: dict[str, Any]) -> dict[str, Any]:
        trainer = KTOTrainer(
            model=self.models["writes"],
            args=KTOConfig(**self.common(**{"max_length": None, **job["settings"]})),
            train_dataset=data,
            processing_class=self.tokenizer,
        )
        return self.train(trainer, self.kto_row)

    def kto_row(self, batch: dict[str, Any]) -> dict[str, Any]:
        ids, mask = batch["input_ids"][0].tolist(), batch["completion_mask"][0].tolist()
        return {
            "text": self.tokenizer.decode(ids),
            "trained": self.spans(ids, mask),
            "label": bool(batch["label"][0]),
        }

    def reward(self, data: Any, job: dict[str, Any]) -> dict[str, Any]:
        trainer = RewardTrainer(
            model=self.models["scores"],
            args=RewardConfig(**self.common(**{"max_length": None, **job["settings"]})),
            train_dataset=data,
            processing_class=self.tokenizer,
        )
        return self.train(trainer, self.reward_row)

    def reward_row(self, batch: dict[str, Any]) -> dict[str, Any]:
        texts = []
        for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True):
            texts.append(self.tokenizer.decode(ids[mask.bool()].tolist()))
        return {"chosen": texts[0], "rejected": texts[1]}

    def grpo(self, data: Any, job: dict[str, Any]) -> dict[str, Any]:
        seen: list[dict[str, Any]] = []

        def reward(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float]:
            known = ("ground_truth", "environment", "task_id", "solve_rate")
            for place, prompt in enumerate(prompts):
                seen.append({"prompt": prompt, **{name: columns[name][place] for name in known}})
            return [float(len(str(completion)) % 3) for completion in completions]

        settings = {"num_generations": 2, "max_completion_length": 6, **job["settings"]}
        trainer = GRPOTrainer(
            model=self.models["writes"],
            args=GRPOConfig(**self.common(**settings)),
            train_dataset=data,
            reward_funcs=reward,
            processing_class=self.tokenizer,
        )
        trainer.train()
        return {**self.report(trainer), "seen": seen}

    def train(self, trainer: Any, as_row: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        rows = []
        for row in trainer.train_dataset:
            known = {name: row[name] for name in ("rollout_id", "pair_id", "turn", "segment") if name in row}
            rows.append({**known, **as_row(trainer.data_collator([row]))})
        trainer.train()
        return {**self.report(trainer), "rows": rows}

    def report(self, trainer: Any) -> dict[str, Any]:
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        return {"steps": trainer.state.global_step, "losses": losses}

    def spans(self, ids: list[int], trained: list[Any]) -> list[str]:
        """The texts of the stretches that are trained on."""
        stretches: list[list[int]] = []
        before = False
        for one, now in zip(ids, trained, strict=True):
            if now and not before:
                stretches.append([])
            if now:
                stretches[-1].append(one)
            before = bool(now)
        return [self.tokenizer.decode(stretch) for stretch in stretches]


if __name__ == "__main__":
    torch.set_num_threads(1)
    jobs, out = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as made:
        bench = Bench(Path(made))
        out.write_text(json.dumps({job["name"]: bench.run(job) for job in json.loads(jobs.read_text())}))
