"""Code that loads an export in its trainer, for the page of the export and its README."""

from collections.abc import Mapping

_ROWS = 'from datasets import load_dataset\n\nrows = load_dataset("FOLDER", split="SPLIT")\n'
_LINES = (
    "import gzip\nimport json\n\n"
    'with OPEN("FOLDER/FILE", "rt", encoding="utf-8") as lines:\n    rows = [READ for line in lines]\n'
)
_NEMO_RL = "data:\n  train:\n    data_path: FOLDER/FILE\n    dataset_name: "
_OPENRLHF = "--data.dataset FOLDER --data.apply_chat_template --data.max_len 8192 \\\n "
_AXOLOTL = "datasets:\n  - path: FOLDER\n    split: SPLIT\n"
_LLAMA_FACTORY = "dataset_dir: FOLDER\ndataset: rollouts_SPLIT\n"
_OPENAI = 'from openai import OpenAI\n\nOpenAI().files.create(file=open("FOLDER/FILE", "rb"), purpose="fine-tune")\n'


def _train(trainer: str, module: str = "trl") -> str:
    return (
        f"from datasets import load_dataset\nfrom {module} import {trainer}Config, {trainer}Trainer\n\n"
        f'{trainer}Trainer(\n    model="Qwen/Qwen3-0.6B",\n    args={trainer}Config(max_length=8192),\n'
        '    train_dataset=load_dataset("FOLDER", split="SPLIT"),\n).train()\n'
    )


_SNIPPETS = {
    **dict.fromkeys(("trl_sft", "trl_sft_completion", "trl_sft_turns", "trl_sft_tokens"), _train("SFT")),
    "trl_dpo": _train("DPO"),
    "trl_orpo": _train("ORPO", "trl.experimental.orpo"),
    "trl_reward": _train("Reward"),
    "trl_kto": _train("KTO"),
    "nemo_rl_sft": f"{_NEMO_RL}openai_format\n    use_preserving_dataset: true\n",
    "nemo_rl_dpo": f"{_NEMO_RL}PreferenceDataset\n",
    "nemo_rl_tasks": f"{_NEMO_RL}NemoGymDataset\n    processor: nemo_gym_data_processor\n",
    "axolotl_sft": f"{_AXOLOTL}    type: chat_template\n    field_messages: messages\n    field_tools: tools\n"
    "    field_thinking: reasoning_content\n",
    "axolotl_dpo": f"rl: dpo\n{_AXOLOTL}",
    **dict.fromkeys(("llama_factory_sft", "llama_factory_dpo", "llama_factory_kto"), _LLAMA_FACTORY),
    "verl_sft": "python -m verl.trainer.sft_trainer data.train_files=FOLDER/FILE \\\n"
    "  data.custom_cls.path=examples/verl/json_sft_dataset.py data.custom_cls.name=JsonSFTDataset\n",
    "openrlhf_sft": f"python -m openrlhf.cli.train_sft {_OPENRLHF} --data.input_key messages --data.multiturn\n",
    "openrlhf_dpo": f"python -m openrlhf.cli.train_dpo {_OPENRLHF} --data.prompt_key context_messages "
    "--data.chosen_key chosen_messages --data.rejected_key rejected_messages\n",
    "art_trajectories": _LINES.replace("json\n", "json\n\nimport art\n").replace("READ", "art.Trajectory(**READ)"),
    **dict.fromkeys(("nemo_gym_rollouts", "nemo_gym_inputs", "atif", "otel_genai"), _LINES),
    **dict.fromkeys(("openai_sft", "openai_dpo", "openai_rft"), _OPENAI),
}


def write_snippet(slug: str, files: Mapping[str, str], *, folder: str) -> tuple[str, str]:
    """Return the language of the code, and the code. `files` has the names of the row files by split."""
    split, file = next(iter(files.items()))
    text = _SNIPPETS.get(slug, _ROWS)
    if slug == "verifiers_prompts" and not file.endswith(".parquet"):
        text = "PYTHONPATH=FOLDER vf-eval gymweb_tasks\n"
    if not file.endswith(".gz"):
        text = text.replace("import gzip\n", "").replace("OPEN(", "open(")
    text = text.replace("OPEN(", "gzip.open(").replace("READ", "json.loads(line)").replace("SPLIT", split)
    language = "sh" if text.startswith(("python -m", "PYTHONPATH")) else "python" if "import" in text else "yaml"
    return language, text.replace("FILE", file).replace("FOLDER", folder)
