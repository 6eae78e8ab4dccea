"""Rubrics: what a judge looks for, with placeholders for what it is given."""

import re

DEFAULT_RUBRICS = {
    "score": "Is the answer correct, complete and to the point?",
    "compare": "Prefer the answer that is correct, complete and to the point.",
    "equal": "Two answers are equal when they say the same in substance, whatever their wording, form or length.",
}

PLACEHOLDERS = {
    "task": "what the attempt was asked",
    "expected_answer": "the row's reference_answer or expected_answer",
    "answer": "the attempt's last message",
    "trace": "its messages, calls and their results, without reasoning",
}
"""In a rubric as `{task}`. Other braces stand for themselves, so that a rubric may hold JSON."""

_PLACEHOLDER = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")


def find_placeholders(rubric: str) -> set[str]:
    return set(_PLACEHOLDER.findall(rubric))


def fill_rubric(rubric: str, mark: str, *, compared: bool) -> str:
    """Each placeholder becomes the name of its section: what others wrote never stands among the judge's orders."""

    def name(found: re.Match[str]) -> str:
        if compared and found[1] in ("answer", "expected_answer"):
            return f"the two answers (<first-{mark}> and <second-{mark}>)"
        return f"<{found[1]}-{mark}>"

    return _PLACEHOLDER.sub(name, rubric)
