"""Read the token IDs of prompts that repeat the tokens of the previous call."""

import msgspec

from apps.gym.traces.tokens import pack_ids

_decoder = msgspec.json.Decoder(list[int] | None)


class KnownIds:
    """The token IDs of the last call of a conversation, packed and as JSON.

    The next prompt usually begins with the same JSON. Then only its new ids are parsed.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known = b"", b""

    def read(self, prompt: bytes, generation: bytes) -> tuple[bytes, bytes]:
        """Return the packed ids of two JSON lists, nothing for null. Raises msgspec.DecodeError or TokensMissing."""
        beginning, ids = self._known
        end = len(beginning)
        if ids and prompt.startswith(beginning) and prompt[end : end + 1] == b",":
            prompt_ids = ids + _read(b"[" + prompt[end + 1 :])
        else:
            prompt_ids = _read(prompt)
        generation_ids = _read(generation)
        if prompt_ids and generation_ids:
            self._known = prompt[:-1] + b"," + generation[1:-1], prompt_ids + generation_ids
        return prompt_ids, generation_ids


def _read(given: bytes) -> bytes:
    return pack_ids(_decoder.decode(given) or [])
