"""Which language a text is in."""

from typing import Any

MAX_READ = 20_000
"""Characters that are looked at; the language of the first few pages is that of the text."""


def detect_language(text: str) -> str:
    """Its code, such as `en` or `zh-cn`; empty where there is nothing to tell it by, as in a text of digits.

    langdetect draws at random; with a fixed seed the same text has the same language each time.
    """
    from langdetect import DetectorFactory, LangDetectException, detect

    factory: Any = DetectorFactory
    factory.seed = 0
    try:
        return str(detect(text[:MAX_READ]))
    except LangDetectException:
        return ""
