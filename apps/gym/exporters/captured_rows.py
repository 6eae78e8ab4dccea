"""Captured tokens of an attempt as exporters write them: segments, and how the tokens were sampled."""

from collections.abc import Collection, Iterable

from apps.gym.exporters.protocol import Attempt, Feature, Options, Row
from apps.gym.sent_sampling import find_altered
from apps.gym.storable import is_number
from apps.gym.traces.events import ModelCall
from apps.gym.traces.segments import Sampled, Segment, join_line, mask_grammar
from apps.gym.traces.tokens import TokensUnreadable
from apps.gym.trainability import Dropped

TOKEN_CHOICES = {"grammar_calls": ("mask", "drop", "keep"), "altered_sampling": ("keep", "drop")}
_NUMBERS = ("temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty")
SAMPLING_FEATURES: dict[str, Feature] = {
    **dict.fromkeys(_NUMBERS, "float64"),
    "top_k": "int64",
    "logit_bias": "json",
    "other_sampling": "json",
    **dict.fromkeys(("altered_sampling", "logprob_mode", "engine", "engine_version", "dtype"), "string"),
}


def join_attempt(attempt: Attempt, options: Options) -> list[tuple[Segment, list[Sampled]]]:
    """Return the segments of an attempt, with calls that used a grammar masked or kept. Raises Dropped."""
    refuse_sampling(attempt.events, options)
    try:
        segments = join_line(attempt.events, attempt.masked)
    except TokensUnreadable:
        raise Dropped("tokens_unreadable") from None
    if options.grammar_calls == "mask":
        for segment, sampled in segments:
            mask_grammar(segment, sampled)
    return segments


def refuse_sampling(events: Collection[object], options: Options) -> None:
    """Raise Dropped for an attempt with a grammar or altered sampling if these are dropped."""
    if options.grammar_calls == "drop" and any(map(is_constrained, events)):
        raise Dropped("grammar_calls")
    if options.altered_sampling == "drop" and name_altered(events):
        raise Dropped("altered_sampling")


def name_altered(events: Iterable[object]) -> list[str]:
    """Return the names of the fields that altered the sampling of captured tokens."""
    captured = (event for event in events if isinstance(event, ModelCall) and event.tokens is not None)
    return sorted({name for event in captured for name in find_altered(event.sampling)})


def is_constrained(event: object) -> bool:
    """Return True for a call with captured tokens that a grammar may have forced."""
    return isinstance(event, ModelCall) and event.grammar and event.tokens is not None


def sampling_columns(attempt: Attempt, sampled: list[Sampled]) -> Row:
    """Return how the tokens of a row were sampled: the fields that all its requests had with the same value.

    Of other fields, the requests set none or several values. `altered_sampling` names the fields that altered any
    request. Columns without a value are left out.
    """
    sent = [{"temperature": one.temperature, **one.sampling} for one in sampled]
    shared = {name: value for name, value in (sent or [{}])[0].items() if all(one.get(name) == value for one in sent)}
    columns: Row = {name: float(shared.pop(name)) for name in _NUMBERS if is_number(shared.get(name))}
    if type(shared.get("top_k")) is int:
        columns["top_k"] = shared.pop("top_k")
    if isinstance(shared.get("logit_bias"), dict):
        columns["logit_bias"] = shared.pop("logit_bias")
    altered = sorted({name for one in sent for name in find_altered(one)})
    grammar = ["grammar"] if any(one.grammar for one in sampled) else []
    columns["other_sampling"] = {name: value for name, value in shared.items() if value is not None}
    columns["altered_sampling"] = ", ".join(altered + grammar)
    known = {name: value for name, value in columns.items() if value not in ({}, "")}
    return {**known, "logprob_mode": attempt.logprob_mode, **attempt.engine}
