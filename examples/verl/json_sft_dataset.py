# mypy: ignore-errors
# Its base class is that of verl, which is not installed where this project is checked.
"""For verl's SFT trainer: conversations whose columns hold JSON text, as GymWeb's format `verl_sft` writes them.

    data.custom_cls.path=examples/verl/json_sft_dataset.py data.custom_cls.name=JsonSFTDataset

verl reads Parquet with pandas, which unifies the structs of a nested column: the parameters of one tool get nulls for
those of another, and so do the arguments of calls. JSON text avoids this; it is parsed here row by row.
"""

import json

from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset


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
