"""Read the table of multiple-choice replies in choice_forms.txt.

Only the standard library, because a Python with NeMo Gym imports it.
"""

import re
from pathlib import Path
from typing import NamedTuple

MODES = {
    "strict": "strict_single_letter_boxed",
    "boxed": "lenient_boxed",
    "colon": "lenient_answer_colon",
    "md": "lenient_answer_colon_md",
}
_LINE = re.compile(r"(?P<mode>\w+) (?P<expected>\w) (?P<reward>[01])(?:\((?P<nemo>[01x])\))? ←(?: (?P<reply>.*))?")


class Form(NamedTuple):
    """One line. `nemo_gym` is the reward of NeMo Gym 0.7, None if it raises an error."""

    options: dict[str, str]
    metadata: dict[str, str]
    mode: str
    expected: str
    reply: str
    reward: float
    nemo_gym: float | None


def read_forms() -> list[Form]:
    """Return the forms of the table."""
    options: dict[str, str] = {}
    metadata: dict[str, str] = {}
    found = []
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            metadata = {}
        elif line.startswith("options: "):
            options = dict(one.split("=", 1) for one in line.removeprefix("options: ").split(" | "))
        elif line.startswith(("output_regex: ", "answer_prefix: ")):
            name, value = line.split(": ", 1)
            metadata = {name: value}
        elif line and not line.startswith("# "):
            match = _LINE.fullmatch(line)
            assert match, line
            reply = (match["reply"] or "").replace("⏎", "\n")
            nemo = match["nemo"] or match["reward"]
            reward, nemo_gym = float(match["reward"]), None if nemo == "x" else float(nemo)
            found.append(Form(options, metadata, MODES[match["mode"]], match["expected"], reply, reward, nemo_gym))
    return found
