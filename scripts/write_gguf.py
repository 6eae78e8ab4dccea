"""Write a folder of the tiny policy as a GGUF file, for llama.cpp: write_gguf.py FOLDER FILE. Needs gguf and numpy.

It converts only this model. llama.cpp's own converter is not in a package, and does not know the tokenizer.
"""

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy

LAYER = {
    "input_layernorm": "attn_norm",
    "mlp.down_proj": "ffn_down",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.k_proj": "attn_k",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.v_proj": "attn_v",
}
OUTSIDE = {"lm_head": "output", "model.embed_tokens": "token_embd", "model.norm": "output_norm"}
# llama.cpp splits text for this one at digits alone. No merge of the tiny policy crosses a line, so the tokens are
# the same.
PRE_TOKENIZER = "superbpe"


def main(folder: Path, path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_name("tiny-policy")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_tokenizer(writer, folder, config)
    for name, tensor in read_tensors(folder / "model.safetensors"):
        writer.add_tensor(gguf_name(name), tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer: gguf.GGUFWriter, folder: Path, config: dict[str, Any]) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = dict.fromkeys(range(config["vocab_size"]), ("", gguf.TokenType.UNUSED))
    vocabulary |= {number: (text, gguf.TokenType.NORMAL) for text, number in tokenizer["model"]["vocab"].items()}
    for token in tokenizer["added_tokens"]:
        kind = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
        vocabulary[token["id"]] = token["content"], kind
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER)
    writer.add_token_list([text for text, _ in vocabulary.values()])
    writer.add_token_types([kind for _, kind in vocabulary.values()])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_add_bos_token(False)
    template = (folder / "chat_template.jinja").read_text()
    # llama.cpp's Jinja has no filter `list` for objects.
    writer.add_chat_template(template.replace("properties | list | join", "properties.keys() | join"))


def read_tensors(path: Path) -> Iterator[tuple[str, numpy.ndarray]]:
    """Yield names and float32 arrays of a safetensors file."""
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    for name, facts in json.loads(content[8 : 8 + size]).items():
        if name != "__metadata__":
            start, end = facts["data_offsets"]
            values = numpy.frombuffer(content[8 + size :][start:end], dtype="<f4")
            yield name, values.reshape(facts["shape"])


def gguf_name(name: str) -> str:
    """Return llama.cpp's name of a tensor of transformers."""
    stem = name.removesuffix(".weight")
    if stem in OUTSIDE:
        return f"{OUTSIDE[stem]}.weight"
    number, part = stem.removeprefix("model.layers.").split(".", 1)
    return f"blk.{number}.{LAYER[part]}.weight"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
