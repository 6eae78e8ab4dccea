"""A question to a judge about the transcript of one rollout, answered with quotes from its events."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from apps.gym.judging.prompts import ANSWER_FORM, DATA_RULE, readable_item
from apps.gym.judging.scale import VerdictUnreadable, closed_object, find_answer, read_choice
from apps.gym.redaction.shortening import cut, cut_middle, shorten
from apps.gym.storable import is_number
from apps.gym.traces.events import EnvironmentTurn, ErrorRaised, ModelCall, Prompt, ToolResult, TraceUnion
from apps.gym.traces.graph import Numbered
from apps.gym.traces.items import Item, dump_json, message

AnswerKind = Literal["yes_no", "label", "number"]
YES_NO = ["yes", "no"]
MAX_REASON = 4_000
"""Characters kept of a reason."""
MAX_QUOTE = 1_000
MAX_CITATIONS = 20
MAX_NUMBER = 1e15
"""Maximum absolute answer: larger numbers cannot be filtered."""
_LEAST = 200
"""Characters that are shown of each event, however long the transcript is."""

_OPENING = "You read the transcript of one attempt of an AI agent, and answer a question about it."
_EVENTS = (
    "The transcript is between <transcript-{mark}> and </transcript-{mark}>. Each of its events begins with a line "
    "“event NUMBER {mark}”. Cite the events that support your answer: `event` is the number, `quote` is a part of the "
    "text of that event, copied character by character. {required}"
)
_REQUIRED = {
    "yes_no": "The answer yes needs at least one citation.",
    "label": "Give no citation if no event supports the label.",
    "number": "Give no citation if no event supports the number.",
}


class Citation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    event: int
    quote: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`value` is yes, no, a label or a number."""

    value: str | float
    reason: str
    citations: list[Citation]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """`labels` are the possible answers of the kind `label`."""

    text: str
    kind: AnswerKind = "yes_no"
    labels: list[str] = []

    @property
    def choices(self) -> list[str]:
        return YES_NO if self.kind == "yes_no" else self.labels

    def schema(self) -> dict[str, Any]:
        """Return the schema of an answer. The reason comes first, so that the model reasons before it decides."""
        answer: dict[str, Any] = {"type": "number"} if self.kind == "number" else {"enum": self.choices}
        citation = closed_object(event={"type": "integer"}, quote={"type": "string"})
        return closed_object(
            mark={"type": "string"},
            reason={"type": "string"},
            citations={"type": "array", "items": citation},
            answer={"type": "string", **answer},
        )

    def compose(self, transcript: Mapping[int, str], *, mark: str, limit: int) -> list[Item]:
        """Return a system message with the question, and a user message with at most `limit` characters of events."""
        schema = ANSWER_FORM.format(mark=mark) + dump_json(self.schema())
        events = _EVENTS.format(mark=mark, required=_REQUIRED[self.kind])
        system = f"{_OPENING}\n\nThe question:\n{self.text}\n\n{DATA_RULE.format(mark=mark)}\n\n{events}\n\n{schema}"
        shown = _cut_events(transcript, limit)
        parts = (f"event {number} {mark}\n{text}" for number, text in shown.items())
        return [
            message("system", system),
            message("user", "\n\n".join([f"<transcript-{mark}>", *parts, f"</transcript-{mark}>"])),
        ]

    def read(self, given: dict[str, Any], transcript: Mapping[int, str]) -> Answer:
        """Return the answer in a judge's object. Raise VerdictUnreadable, also for a quote that is not in its event."""
        answer, reason = find_answer(given, "answer"), given.get("reason")
        value: str | float
        if self.kind == "number":
            if not is_number(answer) or abs(answer) > MAX_NUMBER:
                raise VerdictUnreadable(f"`answer` must be a number, not {shorten(repr(answer), 80)}")
            value = float(answer)
        else:
            value = read_choice(answer, self.choices)
        citations = _read_citations(given.get("citations"), transcript)
        if value == "yes" and self.kind == "yes_no" and not citations:
            raise VerdictUnreadable("the answer yes needs at least one citation")
        # JSON can escape half a surrogate pair, which cannot be stored.
        text = cut(reason if isinstance(reason, str) else "", MAX_REASON).encode(errors="replace").decode().strip()
        return Answer(value=value, reason=text, citations=citations)


def _read_citations(given: object, transcript: Mapping[int, str]) -> list[Citation]:
    try:
        citations = msgspec.convert(given, list[Citation])
    except msgspec.ValidationError as error:
        raise VerdictUnreadable(f"`citations` is wrong: {error}") from None
    if len(citations) > MAX_CITATIONS:
        raise VerdictUnreadable(f"there are {len(citations)} citations, at most {MAX_CITATIONS} are allowed")
    for number, citation in enumerate(citations, start=1):
        if citation.event not in transcript:
            raise VerdictUnreadable(f"citation {number}: the transcript has no event {citation.event}")
        if not citation.quote.strip() or len(citation.quote) > MAX_QUOTE:
            raise VerdictUnreadable(f"citation {number}: `quote` must have 1 to {MAX_QUOTE:,} characters")
        if citation.quote not in transcript[citation.event]:
            raise VerdictUnreadable(
                f"citation {number}: the quote is not in event {citation.event}. Copy a part of its text exactly"
            )
    return citations


def read_transcript(events: Iterable[Numbered]) -> dict[int, str]:
    """Return the text of each event by number: the conversation with reasoning and errors, without verification.

    Like a blind reviewer, the judge sees no reward.
    """
    found: dict[int, str] = {}
    for number, event in events:
        if text := _readable_event(event):
            found[number] = f"{found[number]}\n{text}" if number in found else text
    return found


def _readable_event(event: TraceUnion) -> str:
    match event:
        case Prompt() | ModelCall() | EnvironmentTurn():
            return "\n".join(filter(None, map(readable_item, event.new_items())))
        case ToolResult():
            return f"result of {event.name}: {event.output}"
        case ErrorRaised():
            return f"{event.kind}: {event.message}"
        case _:
            return ""


def _cut_events(transcript: Mapping[int, str], limit: int) -> dict[int, str]:
    """Return the events with the longest ones cut in the middle, so that all have about `limit` characters."""
    cuts: dict[int, str] = {}
    left = limit
    for place, (number, text) in enumerate(sorted(transcript.items(), key=lambda one: len(one[1]))):
        cuts[number] = cut_middle(text, max(_LEAST, left // (len(transcript) - place)))
        left -= len(cuts[number])
    return {number: cuts[number] for number in transcript}
