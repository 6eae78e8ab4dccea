"""Redact credentials in events and ends before they are stored."""

from collections.abc import Mapping, Sequence

import msgspec

from apps.gym.redaction.redactor import MARK, Counts, Redactor, count_marks
from apps.gym.traces.events import TraceUnion, split_event
from apps.rollouts.engine.recording import End
from apps.rollouts.trace_images import EventRow

AttemptKey = tuple[int, int]
"""(rollout id, attempt)"""
PROMPT = "prompt"
"""Kind of the event that holds the prompt."""
BIG = 64 * 1024
"""Payloads with more characters are searched separately, because joining texts copies them."""
TOKENS_NOTE = "redacted"
"""Stored in place of the token IDs of a model call: with the tokenizer, ids would reveal the redacted text."""


def clean_batch(
    events: Sequence[EventRow], ends: Sequence[End], redactor: Redactor, before: Mapping[AttemptKey, Counts]
) -> tuple[Sequence[EventRow], Sequence[End], dict[AttemptKey, Counts]]:
    """Return redacted events and ends, and the updated redaction counts of attempts that have any.

    In the common case, a single search over the whole batch finds nothing to redact.
    """
    counts = dict(before)
    if not counts and not _is_suspicious(events, ends, redactor):
        return events, ends, counts
    cleaned: list[EventRow] = []
    for rollout_id, attempt, seq, kind, payload, tokens in events:
        key = rollout_id, attempt
        clean, kept, found = _clean(kind, payload, tokens, redactor, counts.get(key))
        cleaned.append((rollout_id, attempt, seq, kind, clean, kept))
        if found:
            counts[key] = found
    return cleaned, [clean_end(end, redactor, counts.get((end.id, end.attempt), {})) for end in ends], counts


def _is_suspicious(events: Sequence[EventRow], ends: Sequence[End], redactor: Redactor) -> bool:
    texts = ["\n".join([text for end in ends for text in _texts(end)])]
    if MARK in texts[0]:
        return True
    for _, _, _, _, payload, _ in events:
        if len(payload) <= BIG:
            texts.append(payload)
        elif redactor.is_suspicious(payload):
            return True
    return redactor.is_suspicious("\n".join(texts))


def _texts(end: End) -> tuple[str, ...]:
    return (end.error_message, end.answer, *end.tools, *end.components)


def clean_event(
    event: TraceUnion, redactor: Redactor, before: Counts | None
) -> tuple[str, bytes | None, Counts | None]:
    """Return the redacted payload and packed tokens of an event, and the updated redaction counts of its attempt."""
    return _clean(*split_event(event), redactor, before)


def _clean(
    kind: str, payload: str, tokens: bytes | None, redactor: Redactor, before: Counts | None
) -> tuple[str, bytes | None, Counts | None]:
    """Redact a payload. `before` has the redaction counts of its attempt so far.

    After the first credential, no token IDs are stored, because all later prompts contain it. Token IDs stored earlier
    remain. Credentials in the prompt do not count: the task row keeps them, and the upload reported them.
    """
    payload, found = redactor.redact_json(payload)
    if kind == PROMPT:
        return payload, tokens, before
    counts = add_counts(before, found) if found else before
    if tokens is None or not counts:
        return payload, tokens, counts
    noted = {**msgspec.json.decode(payload), "tokens_note": TOKENS_NOTE}
    return msgspec.json.encode(noted).decode(), None, counts


def clean_end(end: End, redactor: Redactor, redactions: Counts) -> End:
    """Return the redacted end, with the redaction counts of the whole attempt."""
    # Texts that were too long for a message were redacted when they were cut.
    marked = count_marks(end.error_message)
    text = "\n".join(_texts(end))
    if redactor.is_suspicious(text):
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
    """Return the sum of two counts as a new dict."""
    one = one or {}
    return {kind: one.get(kind, 0) + other.get(kind, 0) for kind in {**one, **other}}
