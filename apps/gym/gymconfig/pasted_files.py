"""Several configurations in one text, as people paste them: YAML documents, each below a line `--- # name.yaml`."""

import re

from apps.gym.redaction.shortening import cut

MOST_PASTED = 100_000
"""Characters; read in about two seconds, however they are chosen."""
MOST_DESCRIBED = 200
"""Servers, agents, models and datasets: a preview has written them all before it takes them back."""
_DIVIDER = re.compile(r"^---[ \t]*+(?:#(?P<name>[^\r\n]*+))?\r?$", re.MULTILINE)


def split_texts(text: str) -> dict[str, str]:
    """Each document by its name; one without a name is called by its number. Empty ones count for nothing."""
    names, starts, ends = [""], [0], []
    for divider in _DIVIDER.finditer(text):
        names.append(cut((divider["name"] or "").strip(), 100))
        starts.append(divider.end())
        ends.append(divider.start())
    texts: dict[str, str] = {}
    for name, start, end in zip(names, starts, [*ends, len(text)], strict=True):
        if text[start:end].strip():
            plain = name or f"document {len(texts) + 1}"
            texts[plain if plain not in texts else f"{plain} ({len(texts) + 1})"] = text[start:end]
    return texts


def join_texts(texts: list[tuple[str, str]]) -> str:
    """The other way round, for files: names and texts."""
    return "\n".join(f"--- # {' '.join(name.split())}\n{text}" for name, text in texts)
