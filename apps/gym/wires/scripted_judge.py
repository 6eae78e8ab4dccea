"""The scripted policy model as a judge: it looks for the expected answer, or for the words of a question."""

import re
from typing import Any

from apps.gym.traces.items import as_object, dump_json, text_of
from apps.gym.wires.protocol import VERDICT_SCHEMA, Ask

_SECTION = re.compile(r"^<(\w+)-([0-9a-f]{8})>\n(.*?)\n</\1-\2>$", re.DOTALL | re.MULTILINE)
_RANGE = re.compile(r"from (\S+) \(worst\) to (\S+) \(best\)")
_QUESTION = re.compile(r"^The question:\n(.*?)\n\n", re.DOTALL | re.MULTILINE)
_COMPLETE_LENGTH = 400  # characters of an answer with full marks if no answer is expected


def is_asked_to_judge(ask: Ask) -> bool:
    return bool(ask.sampling) and _format(ask).get("name") == VERDICT_SCHEMA


def judge_by_rule(ask: Ask) -> str:
    """Return a verdict as JSON text in the requested schema. The same texts always get the same verdict."""
    found = [match for item in ask.items for match in _SECTION.findall(text_of(item))]
    mark = found[0][1] if found else ""
    # The attempt may contain similar tags. Only tags with the mark of the first one are from the judge.
    parts = {name: text for name, tag_mark, text in found if tag_mark == mark}
    properties = _format(ask)["schema"]["properties"]
    key, kind = next((key, kind) for key, kind in properties.items() if key not in ("mark", "explanation"))
    verdict: Any
    if "transcript" in parts:
        return _answer_question(text_of(ask.items[0]), parts["transcript"], mark, properties["answer"])
    if key == "winner":
        verdict, why = _prefer(parts)
    elif key == "equal":
        verdict, why = _normalize(parts.get("first", "")) == _normalize(parts.get("second", "")), "by their words"
    else:
        expected = parts.get("expected_answer", "")
        merit = _merit(parts.get("answer") or parts.get("trace") or "", expected)
        verdict = _scale_merit(merit, kind)
        why = "the expected answer is in it" if expected and merit else "the expected answer is not in it"
        why = why if expected else "no answer was expected, so its length decides"
    return dump_json({"mark": mark, "explanation": f"Scripted, no LLM: {why}.", key: verdict})


def _answer_question(system: str, transcript: str, mark: str, answer: dict[str, Any]) -> str:
    """Answer whether the text in double quotes in the question occurs, or in how many events.

    With labels, the answer is the first label that occurs, else the last one.
    """
    question = found[1] if (found := _QUESTION.search(system)) else ""
    choices = answer.get("enum", [])
    quoted = re.findall(r'"([^"]+)"', question)
    phrases = quoted if choices in ([], ["yes", "no"]) else choices
    _, *split = re.split(rf"^event (\d+) {mark}\n", transcript, flags=re.MULTILINE)
    events = list(zip(map(int, split[::2]), split[1::2], strict=True))
    citations = [{"event": at, "quote": phrase} for phrase in phrases for at, text in events if phrase in text]
    said: Any = len({citation["event"] for citation in citations})
    if choices:
        said = choices[-1] if not citations else "yes" if phrases is quoted else citations[0]["quote"]
    reason = "Scripted, no LLM: the words in double quotes, or a label, were searched for."
    return dump_json({"mark": mark, "reason": reason, "citations": citations[:20], "answer": said})


def _prefer(parts: dict[str, str]) -> tuple[str, str]:
    first, second = (_merit(parts.get(place, ""), "") for place in ("first", "second"))
    return "tie" if first == second else "first" if first > second else "second", "the longer one is preferred"


def _merit(attempt: str, expected: str) -> float:
    """Return the quality of an attempt from 0.0 to 1.0."""
    if expected:
        # Match whole words: 4 must not match in 42.
        wanted = rf"(?<!\w){re.escape(expected.strip().casefold())}(?!\w)"
        return float(re.search(wanted, attempt.casefold()) is not None)
    return min(1.0, len(attempt.strip()) / _COMPLETE_LENGTH)


def _normalize(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _scale_merit(merit: float, kind: dict[str, Any]) -> str | float:
    if "enum" in kind:  # assumed to be listed from best to worst
        names: list[str] = kind["enum"]
        return names[round((1.0 - merit) * (len(names) - 1))]
    found = _RANGE.search(kind.get("description", ""))
    low, high = (float(found[1]), float(found[2])) if found else (0.0, 1.0)
    return low + merit * (high - low)


def _format(ask: Ask) -> dict[str, Any]:
    return as_object(as_object(ask.sampling.get("text")).get("format"))
