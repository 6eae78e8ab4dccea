"""Train the tokenizer on the teacher's texts, and encode conversations with a loss mask."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from apps.gym.environments.calculator.environment import CALCULATOR_TOOL
from apps.gym.wires.chat import chat_tool

from .teacher import Turn

TEMPLATE = (Path(__file__).parent / "chat_template.jinja").read_text()
TOOLS = [chat_tool(CALCULATOR_TOOL)]
END_OF_TURN = "<|im_end|>"
PADDING = "<|endoftext|>"
SPECIAL = [PADDING, "<|im_start|>", END_OF_TURN]
MARKS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<tools>", "</tools>"]
"""One token each, but not special tokens: servers must find them in the text of a reply."""


def train_tokenizer(conversations: list[list[Turn]], *, vocabulary: int, context: int) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer that covers every byte.

    It merges across words, because short sequences make training cheap. It never merges two digits, so that numbers are
    copied digit by digit, nor line breaks, so that the tokens of a reply do not depend on the preceding text.
    """
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("\n", "isolated"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    inner.decoder = decoders.ByteLevel()
    wrapped = _wrap(inner, context)
    texts = [
        wrapped.apply_chat_template([turn.message for turn in turns], tools=TOOLS, tokenize=False)
        for turns in conversations
    ]
    # The tokenizer keeps the marks whole; without this, training would also merge their letters.
    for mark in (*SPECIAL, *MARKS):
        texts = [text.replace(mark, "\n") for text in texts]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(SPECIAL) - len(MARKS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    inner.add_special_tokens(SPECIAL)
    inner.add_tokens(MARKS)
    return _wrap(inner, context)


def _wrap(inner: Tokenizer, context: int) -> PreTrainedTokenizerFast:
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token=END_OF_TURN,
        pad_token=PADDING,
        padding_side="left",
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = TEMPLATE
    return wrapped


def render(tokenizer: PreTrainedTokenizerFast, messages: list[dict[str, Any]], *, prompts: bool = True) -> str:
    text: str = tokenizer.apply_chat_template(messages, tools=TOOLS, tokenize=False, add_generation_prompt=prompts)
    return text


class Encoder:
    """Encodes conversations as token IDs with a mask of the learned ones: the text of the model and its end of turn."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer
        self.end = tokenizer.convert_tokens_to_ids(END_OF_TURN)
        self.header = tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)

    def encode(self, turns: list[Turn]) -> tuple[list[int], list[bool]]:
        text = render(self.tokenizer, [turn.message for turn in turns], prompts=False)
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        learned = [False] * len(ids)
        place = 0
        for turn in turns:
            if turn.message["role"] != "assistant":
                continue
            while ids[place : place + len(self.header)] != self.header:
                place += 1
            start = place + len(self.header)
            place = ids.index(self.end, start) + 1
            learned[start:place] = [turn.learned] * (place - start)
        return ids, learned

    def check_growth(self, turns: list[Turn]) -> None:
        """Check that a growing conversation keeps its tokens; otherwise rollouts would have several segments."""
        messages = [turn.message for turn in turns]
        whole, _ = self.encode(turns)
        for place, turn in enumerate(turns):
            if turn.message["role"] == "assistant":
                asked = self.tokenizer.encode(render(self.tokenizer, messages[:place]), add_special_tokens=False)
                if whole[: len(asked)] != asked:
                    raise AssertionError("the template or the tokenizer writes an earlier turn in other tokens")
