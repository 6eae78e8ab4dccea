#!/bin/sh
# trl 1.16.0: ORPOTrainer and CPOTrainer ignore the column `tools` of pairs, and train a second end of turn.
#
# DPOTrainer renders the tools with the chat template; the two others render the same rows without. Many templates, as
# Qwen's, end a turn with <|im_end|> and a line feed. The two look only at the last token for the end, find the line
# feed, and add <|im_end|> again.
# Expected: all three train the same text. A model so trained calls tools that its prompt does not name, and goes on
# after its end of turn. Output seen:
#
#     DPOTrainer: tools yes, trained '42<|im_end|>\n'
#     ORPOTrainer: tools no, trained '42<|im_end|>\n<|im_end|>'
#     CPOTrainer: tools no, trained '42<|im_end|>\n<|im_end|>'
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
"${PYTHON:-python3.13}" -m venv "$folder"
"$folder/bin/pip" install --quiet trl==1.16.0 transformers==5.23.0 datasets==5.2.0 torch==2.13.0
HF_HOME=$folder HF_HUB_OFFLINE=1 CUDA_VISIBLE_DEVICES="" \
    "$folder/bin/python" -W ignore - "$folder/out" 2>"$folder/log" <<'END'
import sys

from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
bytewise = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bytewise.decoder = decoders.ByteLevel()
bytewise.add_special_tokens(["<|im_start|>", "<|im_end|>", "<pad>"])
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytewise, eos_token="<|im_end|>", pad_token="<pad>")
tokenizer.chat_template = """{% if tools %}{{ tools | tojson }}
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
function = {"name": "multiply", "description": "Multiply", "parameters": {"type": "object", "properties": {}}}
pair = {
    "prompt": [{"role": "user", "content": "6 * 7?"}],
    "chosen": [{"role": "assistant", "content": "42"}],
    "rejected": [{"role": "assistant", "content": "41"}],
    "tools": [{"type": "function", "function": function}],
}
rows = Dataset.from_list([pair])


def make_model():
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes))


def prepare(trainer, config, **more):
    given = config(output_dir=sys.argv[1], use_cpu=True, bf16=False, report_to="none")
    return trainer(make_model(), args=given, train_dataset=rows, processing_class=tokenizer, **more).train_dataset[0]


rows_of = {
    "DPOTrainer": (prepare(DPOTrainer, DPOConfig, ref_model=make_model()), "prompt_ids", "chosen_ids"),
    "ORPOTrainer": (prepare(ORPOTrainer, ORPOConfig), "prompt_input_ids", "chosen_labels"),
    "CPOTrainer": (prepare(CPOTrainer, CPOConfig), "prompt_input_ids", "chosen_labels"),
}
seen = []
for name, (row, prompt, trained) in rows_of.items():
    tools = "yes" if "multiply" in tokenizer.decode(row[prompt]) else "no"
    seen.append(f"{name}: tools {tools}, trained {tokenizer.decode([n for n in row[trained] if n >= 0])!r}")
print(*seen, sep="\n")
assert seen == [
    r"DPOTrainer: tools yes, trained '42<|im_end|>\n'",
    r"ORPOTrainer: tools no, trained '42<|im_end|>\n<|im_end|>'",
    r"CPOTrainer: tools no, trained '42<|im_end|>\n<|im_end|>'",
]
END
