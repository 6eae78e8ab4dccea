"""A tokenizer without a model, for the environments of the trainers."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast


def make_tokenizer(
    template: str = "",
    special: tuple[str, ...] = ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    **named: str,
) -> PreTrainedTokenizerFast:
    """Return a tokenizer that knows bytes and the special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(list(special))
    named = named or {"eos_token": "<|im_end|>"}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<|endoftext|>", clean_up_tokenization_spaces=False, **named
    )
    tokenizer.chat_template = template or (Path(__file__).parent.parent / "template.jinja").read_text()
    return tokenizer
