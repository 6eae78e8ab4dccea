"""What a rollout leaves behind, without the credentials in it: events and ends, before they are stored."""

import msgspec

from apps.gym.redaction.redactor import Counts, Redactor, count_marks
from apps.gym.traces.events import ModelCall, TraceUnion, encode_event, event_tokens
from apps.rollouts.engine.recording import End

TOKENS_NOTE = "redacted"
"""Why a model call has no token ids: whoever has the tokenizer would read in them what was taken out of the text."""


def clean_event(
    event: TraceUnion, redactor: Redactor, before: Counts | None
) -> tuple[str, bytes | None, Counts | None]:
    """Payload and packed tokens of an event, and the counts of its attempt with this event in them.

    `before` are the counts of the attempt so far. From the first credential on no token ids are kept: the prompts of
    all later calls have it in them. What was kept before is read without them.
    """
    payload, found = redactor.redact_json(encode_event(event))
    counts = add_counts(before, found) if found else before
    tokens = event_tokens(event)
    if tokens is None or not counts:
        return payload, tokens, counts
    assert isinstance(event, ModelCall)
    noted = msgspec.structs.replace(event, tokens=None, tokens_note=TOKENS_NOTE)
    return redactor.redact_json(encode_event(noted))[0], None, counts


def clean_end(end: End, redactor: Redactor, redactions: Counts) -> End:
    """The end as it is stored, with the counts of its attempt's events, where its own texts are counted."""
    # What was too long for a message was redacted where it was cut.
    marked = count_marks(end.error_message)
    said = "\n".join((end.error_message, end.answer, *end.tools, *end.components))
    if redactor.is_suspicious(said):
        message, found = redactor.redact_text(end.error_message)
        answer, also_found = redactor.redact_text(end.answer)
        tools, _ = redactor.redact_value(dict(end.tools))
        components, _ = redactor.redact_value(dict(end.components))
        end = msgspec.structs.replace(
            end, error_message=message, answer=answer[:200], tools=tools, components=components
        )
        marked = add_counts(marked, add_counts(found, also_found))
    redactions = redactions or marked
    return msgspec.structs.replace(end, redactions=redactions, flagged=True) if redactions else end


def add_counts(one: Counts | None, other: Counts) -> Counts:
    """The sum; neither is changed."""
    one = one or {}
    return {kind: one.get(kind, 0) + other.get(kind, 0) for kind in {**one, **other}}
