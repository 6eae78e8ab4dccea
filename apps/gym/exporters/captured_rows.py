"""Captured tokens of an attempt as exporters write them: segments, and how the tokens were sampled."""

from apps.gym.exporters.protocol import Attempt, Feature, Options, Row
from apps.gym.traces.events import ModelCall
from apps.gym.traces.segments import Sampled, Segment, join_line, mask_grammar
from apps.gym.traces.tokens import TokensUnreadable
from apps.gym.trainability import Dropped

GRAMMAR_CHOICES = ("mask", "drop", "keep")
SAMPLING_FEATURES: dict[str, Feature] = {"temperature": "float64", "logprob_mode": "string"}


def join_attempt(attempt: Attempt, options: Options) -> list[tuple[Segment, list[Sampled]]]:
    """Return the segments of an attempt, with calls that used a grammar masked or kept. Raises Dropped."""
    refuse_grammar(attempt, options)
    try:
        segments = join_line(attempt.events, attempt.masked)
    except TokensUnreadable:
        raise Dropped("tokens_unreadable") from None
    if options.grammar_calls == "mask":
        for segment, sampled in segments:
            mask_grammar(segment, sampled)
    return segments


def refuse_grammar(attempt: Attempt, options: Options) -> None:
    """Raise Dropped for an attempt with a grammar if these are dropped."""
    if options.grammar_calls == "drop" and any(is_constrained(event) for event in attempt.events):
        raise Dropped("grammar_calls")


def is_constrained(event: object) -> bool:
    """Return True for a call with captured tokens that a grammar may have forced."""
    return isinstance(event, ModelCall) and event.grammar and event.tokens is not None


def sampling_columns(attempt: Attempt, sampled: list[Sampled]) -> Row:
    """Return the temperature and the logprob mode of a row.

    Without a temperature, the requests set none or several.
    """
    temperatures = {one.temperature for one in sampled}
    known = temperatures.pop() if len(temperatures) == 1 else None
    return {**({} if known is None else {"temperature": known}), "logprob_mode": attempt.logprob_mode}
