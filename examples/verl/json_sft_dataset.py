# mypy: ignore-errors
# Its base class is that of verl, which is not installed where this project is checked.
"""For verl's SFT trainer: conversations whose columns hold JSON text, as GymWeb's format `verl_sft` writes them.

    data.custom_cls.path=examples/verl/json_sft_dataset.py data.custom_cls.name=JsonSFTDataset

verl reads Parquet with pandas, which unifies the structs of a nested column: the parameters of one tool get nulls for
those of another, and so do the arguments of calls. JSON text avoids this; it is parsed here row by row.

verl also renders each message by itself, and refuses a row if the texts together differ from the whole conversation.
Chat templates like Qwen's write the results of parallel calls as one message, so these are rendered together here.
"""

import json
from itertools import takewhile

from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset, apply_chat_template


def read_column(column):
    """Return the values of a column as Python objects, in order; values other than text are unchanged."""
    return [json.loads(value) if isinstance(value, str) else value for value in column]


class JsonSFTDataset(MultiTurnSFTDataset):
    """Returns the same rows as nested columns without added nulls."""

    def _read_files_and_process(self):
        super()._read_files_and_process()
        frame = self.dataframe.reset_index(drop=True)
        self.messages = read_column(frame[self.messages_key])
        # Stored as objects, because pandas would spread lists of equal length over columns.
        frame[self.messages_key] = frame[self.messages_key].astype(object)
        frame[self.messages_key] = self.messages
        self.dataframe = frame
        if self.tools is not None:
            # verl expects None for conversations without tools, which have an empty list here.
            self.tools = [tools or None for tools in read_column(frame[self.tools_key])]

    def _process_single_message(self, index, message, full_message, tools=None, enable_thinking=None):
        """Return the tokens of a message. The first result of parallel calls has the tokens of all of them."""
        if message["role"] != "tool":
            return super()._process_single_message(index, message, full_message, tools, enable_thinking)
        if full_message[index - 1]["role"] == "tool":
            ids, loss, attention, _ = super()._process_single_message(
                index, message, full_message, tools, enable_thinking
            )
            return ids[:0], loss[:0], attention[:0], {}
        thinking = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
        found = dict(
            apply_chat_template(
                self.tokenizer if self.processor is None else self.processor,
                messages=list(takewhile(lambda one: one["role"] == "tool", full_message[index:])),
                tools=None,
                add_generation_prompt=False,
                tokenize=True,
                return_dict=True,
                return_tensors="pt",
                **{**self.apply_chat_template_kwargs, **thinking},
            )
        )
        # The template writes its default system prompt before each conversation.
        ids, attention = (found.pop(name)[0][len(self.system_prompt) :] for name in ("input_ids", "attention_mask"))
        return ids, attention * 0, attention, found
