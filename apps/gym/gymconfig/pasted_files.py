"""Several configurations pasted as one text: YAML documents, each below a line `--- # name.yaml`."""

import re

from apps.gym.redaction.shortening import cut

MOST_PASTED = 100_000
"""Maximum characters. Any text of this length is read in about two seconds."""
MOST_DESCRIBED = 200
"""Maximum servers, agents, models and datasets. A preview writes all of them before it rolls back."""
_DIVIDER = re.compile(r"^---[ \t]*+(?:#(?P<name>[^\r\n]*+))?\r?$", re.MULTILINE)


def split_texts(text: str) -> dict[str, str]:
    """Return each document by its name, or its number without a name. Empty documents are skipped."""
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
    """Join names and texts of files into one text, the reverse of `split_texts`."""
    return "\n".join(f"--- # {' '.join(name.split())}\n{text}" for name, text in texts)
