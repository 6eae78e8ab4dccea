"""Find the final answer in a text that also holds its derivation, as public data sets write it."""

import re

from apps.gym.answer_texts import last_boxed

_HASHES = re.compile(r"^[ \t]*####[ \t]*(\S.*)$", re.MULTILINE)
_THOUGHT = "</think>"


def after_hashes(text: str) -> str | None:
    """Return the text after the last `####` that begins a line, as in GSM8K; None without one."""
    found = _HASHES.findall(text)
    return found[-1].strip() if found else None


def find_final_answer(text: str) -> str | None:
    r"""Return the text after `</think>`, after the last `####`, or in the last `\boxed{}`; None without any of them."""
    thought, mark, rest = text.rpartition(_THOUGHT)
    rest = rest if mark else text
    found = after_hashes(rest) or last_boxed(rest)
    return found or (rest.strip() or None if mark and thought else None)
