"""Text → words, alike for what is indexed and for what is looked for. Pure: the same in both databases.

Letters and digits between other signs are a word, without accents and in small letters. Of scripts that write no
spaces each letter is a word, and of signs like emoji each is one: looked for as a phrase, they are found in any text.
"""

import re
import unicodedata
from collections.abc import Iterator

BREAK = "\ue000"
"""Between two texts, so that no phrase reaches from one into the other; no text has it as a word."""
MAX_WORD = 64
"""Letters of a word that count: what is longer is no word that people look for."""
_SINGLE = (
    r"\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3040-\u30ff\u3100-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf"
    r"\u4e00-\u9fff\ua000-\ua4cf\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff"
    r"\u0e00-\u0e7f\u0e80-\u0eff\u1000-\u109f\u1780-\u17ff"
)
_PIECES = re.compile(rf"[{_SINGLE}]|[^\W_{_SINGLE}]+|[\u2190-\u2bff\U0001f000-\U0001faff]")
_ACCENTS = re.compile("[\u0300-\u036f]")


def split_words(text: str) -> Iterator[str]:
    """In their order."""
    for found in _PIECES.finditer(fold(text)):
        piece = found[0]
        code = ord(piece[0])
        if len(piece) == 1 and (0x2190 <= code <= 0x2BFF or 0x1F000 <= code <= 0x1FAFF):
            # Databases take these for spaces; as letters they stay.
            yield f"u{code:x}"
        elif piece.isalnum():
            yield piece[:MAX_WORD]


def fold(text: str) -> str:
    """In small letters, without accents of Latin, Greek and Cyrillic ones, in one form where there are several."""
    if text.isascii():
        return text.lower()
    bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFC", bare).casefold()
