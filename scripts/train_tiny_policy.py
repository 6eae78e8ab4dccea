#!/usr/bin/env python
"""Train examples/tiny_policy from scratch: a model with less than a million parameters that calls GymWeb's calculator.

Runs in the environment of `make vllm`; `make tiny-policy` does both. Trains at a constant rate until enough sampled
attempts in the real environment are rewarded, saving snapshots, and then decays the rate to zero. `half` is the
snapshot nearest to 60 %, `strong` the last one. Figures are written to metrics.json.
"""

import argparse
import json
import os
import platform
import random
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402 - after the hub is told to stay offline
import transformers  # noqa: E402
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM  # noqa: E402

from scripts.tiny_policy.playing import measure_success  # noqa: E402
from scripts.tiny_policy.tasks import draw_rows  # noqa: E402
from scripts.tiny_policy.teacher import write_attempt  # noqa: E402
from scripts.tiny_policy.tokenizing import Encoder, train_tokenizer  # noqa: E402

VOCABULARY = 512  # maximum: merging stops when the text has no more pairs
CONTEXT = 1024
BATCH = 32
POOL = 8  # batches are cut from this many, sorted by length
PEAK_RATE = 3e-3
WARM_UP = 100
MEASURE_EVERY = 50
SNAPSHOT_EVERY = 25
GOOD_ENOUGH = 0.85  # decaying the rate does the rest
COOL_DOWN = 2400
WANTED_HALF = 0.60
TOKENIZER_TEXTS = 4000
MEASURED_ROWS = 1000


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    # Not Qwen2: for that name, transformers replaces the tokenizer's pre-tokenization rules with its own.
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=CONTEXT,
            # Untied, so that a server can load new weights in place: vLLM on CPU handles tied embeddings wrongly.
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


class Training:
    """The model, its optimizer and its random numbers."""

    def __init__(self, *, seed: int) -> None:
        torch.manual_seed(seed)
        self.seed = seed
        self.dice = random.Random(seed)
        texts = [write_attempt(self.dice) for _ in range(TOKENIZER_TEXTS)]
        self.tokenizer = train_tokenizer(texts, vocabulary=VOCABULARY, context=CONTEXT)
        self.encoder = Encoder(self.tokenizer)
        for turns in texts[:200]:
            self.encoder.check_growth(turns)
        self.model = make_model(self.tokenizer)
        matrices = [p for p in self.model.parameters() if p.ndim > 1]
        vectors = [p for p in self.model.parameters() if p.ndim == 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.95))
        self.pool: list[list[tuple[list[int], list[bool]]]] = []
        self.steps = 0
        self.loss = float("nan")  # a running mean

    def step(self, rate: float) -> None:
        ids, mask, learned = self._batch()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        states = self.model.model(input_ids=ids, attention_mask=mask).last_hidden_state[:, :-1]
        loss = torch.nn.functional.cross_entropy(self.model.lm_head(states[learned[:, 1:]]), ids[:, 1:][learned[:, 1:]])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.steps += 1
        now = loss.item()
        self.loss = now if self.steps == 1 else 0.95 * self.loss + 0.05 * now

    def _batch(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return token IDs, the mask of tokens that are no padding, and the mask of learned tokens."""
        if not self.pool:
            attempts = (self.encoder.encode(write_attempt(self.dice)) for _ in range(BATCH * POOL))
            encoded = sorted(attempts, key=lambda each: len(each[0]))
            self.pool = [encoded[start : start + BATCH] for start in range(0, len(encoded), BATCH)]
            self.dice.shuffle(self.pool)
        batch = self.pool.pop()
        shape = (BATCH, len(batch[-1][0]))
        ids = torch.full(shape, self.tokenizer.pad_token_id)
        mask, learned = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool)
        for row, (own, marks) in enumerate(batch):
            ids[row, : len(own)] = torch.tensor(own)
            mask[row, : len(own)] = 1
            learned[row, : len(own)] = torch.tensor(marks)
        return ids, mask, learned

    def snapshot(self) -> dict[str, Any]:
        weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        return {"weights": weights, "steps": self.steps, "loss": self.loss}

    def load(self, snapshot: dict[str, Any]) -> None:
        self.model.load_state_dict(snapshot["weights"])

    def measure(self, rows: int, *, seed: int, held_out: bool | None = None) -> dict[str, float]:
        tasks = draw_rows(rows, seed=seed, held_out=held_out)
        return measure_success(self.model, self.tokenizer, tasks, seed=seed)

    def save(self, folder: Path) -> None:
        """Save a Hugging Face folder."""
        folder.mkdir(parents=True, exist_ok=True)
        # No sampling defaults, because servers would use them instead of the caller's.
        self.model.generation_config = transformers.GenerationConfig(
            eos_token_id=[self.tokenizer.eos_token_id, self.tokenizer.pad_token_id],
            pad_token_id=self.tokenizer.pad_token_id,
        )
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        self._name_tokenizer(folder)

    def _name_tokenizer(self, folder: Path) -> None:
        """Set a tokenizer class that older and newer versions know, and read it back.

        Servers must use the same tokens as training.
        """
        path = folder / "tokenizer_config.json"
        settings = json.loads(path.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}
        path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
        turns = write_attempt(random.Random(self.seed))
        if Encoder(transformers.AutoTokenizer.from_pretrained(folder)).encode(turns) != self.encoder.encode(turns):
            raise AssertionError("the saved tokenizer is read back as another one")


def learn(training: Training, *, max_steps: int) -> list[tuple[float, dict[str, Any]]]:
    """Train to the end. Return snapshots from before the decay, each with its nearest measured success."""
    began = time.perf_counter()
    climb: list[tuple[float, dict[str, Any]]] = []
    success = 0.0
    while success < GOOD_ENOUGH:
        if training.steps >= max_steps:
            raise SystemExit(f"after {max_steps} steps only {success:.0%} of sampled attempts are rewarded: no weights")
        training.step(PEAK_RATE * min(1.0, (training.steps + 1) / WARM_UP))
        if training.steps % SNAPSHOT_EVERY == 0:
            if training.steps % MEASURE_EVERY == 0:
                # Before the model has learned to write replies, sampling is useless.
                success = training.measure(128, seed=training.steps)["success"] if training.loss < 0.5 else 0.0
            climb.append((success, training.snapshot()))
            say(step=training.steps, loss=round(training.loss, 4), success=success, s=since(began))
    for left in range(COOL_DOWN, 0, -1):
        training.step(PEAK_RATE * left / COOL_DOWN)
        if left % 100 == 1:
            success = training.measure(128, seed=training.steps)["success"]
            say(step=training.steps, loss=round(training.loss, 4), success=success, s=since(began))
    return climb


def choose_half(training: Training, climb: list[tuple[float, dict[str, Any]]]) -> dict[str, Any]:
    """Return the snapshot whose success over enough attempts is nearest to the target."""
    near = sorted(climb, key=lambda entry: abs(entry[0] - WANTED_HALF))[:6]
    measured = []
    for _, snapshot in near:
        training.load(snapshot)
        found = training.measure(400, seed=training.seed + 1)
        say(candidate=snapshot["steps"], **found)
        measured.append((abs(found["success"] - WANTED_HALF), snapshot["steps"], snapshot))
    return min(measured)[2]


def finish(training: Training, snapshot: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Save a checkpoint and measure it on new tasks, separately for held-out expressions."""
    training.load(snapshot)
    training.save(folder)
    report = {
        "steps": snapshot["steps"],
        "loss": round(snapshot["loss"], 4),
        "seen_kind": training.measure(MEASURED_ROWS, seed=training.seed + 2, held_out=False),
        "held_out": training.measure(MEASURED_ROWS, seed=training.seed + 3, held_out=True),
    }
    say(checkpoint=folder.name, **report)
    return report


def since(began: float) -> int:
    return round(time.perf_counter() - began)


def say(**facts: Any) -> None:
    print(json.dumps(facts), file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "examples" / "tiny_policy")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--threads", type=int, default=1, help="more help only on cores that nobody else uses")
    parser.add_argument("--max-steps", type=int, default=6000, help="give up where success stays low for so long")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    began, cpu = time.perf_counter(), time.process_time()
    training = Training(seed=options.seed)
    parameters = sum(p.numel() for p in training.model.parameters())
    say(parameters=parameters, vocabulary=len(training.tokenizer))
    climb = learn(training, max_steps=options.max_steps)
    end = training.snapshot()
    seconds, cpu_seconds = since(began), round(time.process_time() - cpu)
    checkpoints = {"half": choose_half(training, climb), "strong": end}
    report = {
        "seed": options.seed,
        "parameters": parameters,
        "batch": BATCH,
        "training_seconds": seconds,
        "training_cpu_seconds": cpu_seconds,
        "threads": options.threads,
        "machine": platform.machine(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "checkpoints": {name: finish(training, kept, options.out / name) for name, kept in checkpoints.items()},
    }
    rows = draw_rows(50, seed=options.seed + 4, held_out=True)
    (options.out / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (options.out / "metrics.json").write_text(json.dumps(report, indent=2) + "\n")
    say(**report)
    if report["checkpoints"]["strong"]["held_out"]["success"] < 0.95:
        raise SystemExit("the stronger checkpoint is below 95 %: not what the card promises")


if __name__ == "__main__":
    main()
