"""Fine-tune a model on its own demonstrations with TRL. Runs in the environment of `make trainers`.

`fine_tune.py MODEL EXPORT OUT` takes a Hugging Face folder and an export of the format `trl_sft_tokens`, whose rows are
the exact token IDs that the model read and sampled, with labels for the sampled ones. OUT is a new folder for the new
weights with the unchanged tokenizer and chat template.
"""

import argparse
import json
import os
import shutil
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

BATCH = 32


def fine_tune(model: Path, export: Path, out: Path, *, seed: int, epochs: float, rate: float) -> dict[str, float]:
    """Train, save the weights, and return the training metrics."""
    rows = load_dataset(str(export), split="train")
    began = time.perf_counter()
    trainer = SFTTrainer(
        model=str(model),
        args=SFTConfig(
            output_dir=str(out.with_name(f"{out.name}-training")),
            num_train_epochs=epochs,
            per_device_train_batch_size=BATCH,
            learning_rate=rate,
            lr_scheduler_type="linear",
            warmup_steps=10,
            max_grad_norm=1.0,
            # Do not truncate: the end of a long row earned the reward.
            max_length=None,
            seed=seed,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            save_strategy="no",
            report_to="none",
            logging_steps=20,
            disable_tqdm=True,
        ),
        train_dataset=rows,
    )
    found = trainer.train()
    shutil.copytree(model, out, ignore=shutil.ignore_patterns("*.safetensors"))
    trainer.model.save_pretrained(out)
    for kept in ("config.json", "generation_config.json"):
        # The original files, because the trainer's library version may differ from the server's.
        shutil.copy(model / kept, out / kept)
    return {
        "rows": len(rows),
        "steps": trainer.state.global_step,
        "loss": round(found.training_loss, 4),
        "seconds": round(time.perf_counter() - began, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("export", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    if given.out.exists():
        parser.error(f"{given.out} exists. Give a new folder.")
    torch.set_num_threads(given.threads)
    figures = fine_tune(given.model, given.export, given.out, seed=given.seed, epochs=given.epochs, rate=given.rate)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
