"""Rubrics of judges, with placeholders for the sections that the judge reads."""

import re

DEFAULT_RUBRICS = {
    "score": "Is the answer correct, complete and to the point?",
    "compare": "Prefer the answer that is correct, complete and to the point.",
    "equal": "Two answers are equal when they say the same in substance, whatever their wording, form or length.",
}

PLACEHOLDERS = {
    "task": "the input of the task",
    "expected_answer": "reference_answer or expected_answer of the row",
    "answer": "the final answer",
    "trace": "all messages, calls and results, without reasoning",
}
"""Written in a rubric as `{task}`. Other braces are literal, so that a rubric may contain JSON."""

_PLACEHOLDER = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")


def find_placeholders(rubric: str) -> set[str]:
    return set(_PLACEHOLDER.findall(rubric))


def fill_rubric(rubric: str, mark: str, *, compared: bool) -> str:
    """Replace each placeholder by the name of its section, so that untrusted text is never among the instructions."""

    def name(found: re.Match[str]) -> str:
        if compared and found[1] in ("answer", "expected_answer"):
            return f"the two answers (<first-{mark}> and <second-{mark}>)"
        return f"<{found[1]}-{mark}>"

    return _PLACEHOLDER.sub(name, rubric)
