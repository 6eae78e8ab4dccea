"""Compile filters to SQL. Column names come only from registered keys, never from the filter text."""

import re
from collections.abc import Callable
from typing import Any

from django.db.models import BooleanField, F, Func, Q
from django.db.models import Value as Literal
from django.db.models.lookups import Exact, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from apps.gym.outcomes import ENDED_BY_ITSELF
from apps.rollouts.failures.cause_index import UNSOLVED
from apps.rollouts.models import (
    ALL_TOKENS,
    FAILED_WORD,
    HAS_ENDED,
    Collection,
    Rollout,
    RolloutCause,
    RolloutQuerySet,
    ScanAnswer,
)
from apps.rollouts.search.filters.filter_grammar import (
    Anything,
    Between,
    Filter,
    Number,
    Pattern,
    Sign,
    Term,
    Text,
    Value,
    read_scan_value,
)
from apps.rollouts.search.filters.filter_parser import parse_filter
from apps.rollouts.search.filters.text_search import find_text
from apps.tasks.models import Task


def filter_rollouts(rollouts: RolloutQuerySet, text: str) -> RolloutQuerySet:
    """Return the rollouts that match the filter `text`. An empty text matches all. Raise FilterRefused.

    Rollouts are not read here, but collections may be looked up by name.
    """
    return apply_filter(rollouts, parse_filter(text))


def apply_filter(rollouts: RolloutQuerySet, parsed: Filter) -> RolloutQuerySet:
    """Return the rollouts that match a parsed filter."""
    of_collections = [term for term in parsed.terms if term.key in OF_COLLECTIONS]
    if of_collections:
        rollouts = rollouts.of_collections(collections_of(of_collections), version=_one_version(parsed))
    for term in parsed.terms:
        if term.key not in OF_COLLECTIONS:
            rollouts = rollouts.filter(compile_term(term))
    return rollouts


def _one_version(parsed: Filter) -> str:
    """Return the policy model version that the filter requires, or an empty string."""
    for term in parsed.terms:
        match term.values:
            case (Text(text),) if term.key == "version" and not term.negated:
                return text
    return ""


_LOOKUPS: dict[Sign, str] = {"=": "exact", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
_COMPARED: dict[Sign, Any] = {
    "=": Exact,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
    "<": LessThan,
    "<=": LessThanOrEqual,
}
MAX_TASKS = 1_000
"""Maximum number of tasks with the same external id that are searched."""
MAX_ID = 2**63 - 1
FLAGS: dict[str, Q] = {
    "truncated": ~Q(stop_reason="") & ~Q(stop_reason__in=sorted(ENDED_BY_ITSELF)),
    "tool_error": Q(tool_errors__gt=0),
    "redacted": ~Q(redactions={}),
    "credentials": Q(flagged=True),
    "no_usage": Q(calls_without_usage__gt=0),
    "retried": Q(attempt__gt=1),
    "lost": Q(lost__gt=0),
    "masked": ~Q(masked=""),
    "ambiguous": Q(ambiguous_path=True),
    "unscored": Q(status=Rollout.Status.COMPLETED, reward__isnull=True),
    "unsolved": UNSOLVED,
}


def _number(column: str) -> Callable[[Value], Q]:
    def compile(value: Value) -> Q:
        match value:
            case Number(sign, number):
                return Q(**{f"{column}__{_LOOKUPS[sign]}": number})
            case Between(low, high, above, below):
                ends = {f"{column}__{'gt' if above else 'gte'}": low, f"{column}__{'lt' if below else 'lte'}": high}
                return Q(**ends)
            case _:
                return Q(**{f"{column}__isnull": False})

    return compile


def _figure(column: str) -> Callable[[Value], Q]:
    """Compare a number of finished rollouts. On other rollouts the column is empty or belongs to an earlier attempt."""
    compile = _number(column)
    return lambda value: compile(value) & HAS_ENDED


def _tokens(value: Value) -> Q:
    return _all_tokens(value) & HAS_ENDED


def _all_tokens(value: Value) -> Q:
    match value:
        case Number(sign, number):
            return Q(_COMPARED[sign](ALL_TOKENS, int(number)))
        case Between(low, high, above, below):
            least = _COMPARED[">" if above else ">="](ALL_TOKENS, int(low))
            return Q(least) & Q(_COMPARED["<" if below else "<="](ALL_TOKENS, int(high)))
    raise AssertionError(value)


def _words(column: str) -> Callable[[Value], Q]:
    """Compare a text column in which an empty string means no value."""

    def compile(value: Value) -> Q:
        match value:
            case Anything():
                return ~Q(**{column: ""})
            case Pattern(text):
                return _like(column, text)
            case Text(text):
                return Q(**{column: text})
        raise AssertionError(value)

    return compile


def _like(column: str, pattern: str) -> Q:
    if pattern.endswith("*") and pattern.count("*") == 1:
        return Q(**{f"{column}__startswith": pattern[:-1]})
    return Q(**{f"{column}__regex": "^" + ".*".join(map(re.escape, pattern.split("*"))) + "$"})


class _HasName(Func):
    """Test whether a JSON object has this key, whatever characters the key has."""

    function = "jsonb_exists"
    output_field = BooleanField()

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, tuple[Any, ...]]:
        between = ") AS named WHERE named.key = ("
        template = "EXISTS (SELECT 1 FROM json_each(%(expressions)s))"
        return self.as_sql(compiler, connection, template=template, arg_joiner=between, **extra)


def _tool(value: Value) -> Q:
    if not isinstance(value, Text):
        return ~Q(tools={})
    # Not `has_key`: its JSON path on SQLite ends at the first quotation mark.
    is_plain = '"' not in value.text and "\\" not in value.text
    return Q(tools__has_key=value.text) if is_plain else Q(_HasName(F("tools"), Literal(value.text)))


def _tag(value: Value) -> Q:
    return Q(task__tags_text__contains=f"\n{value.text}\n") if isinstance(value, Text) else ~Q(task__tags_text="")


def _task(value: Value) -> Q:
    assert isinstance(value, Text)
    if (number := _reference(value.text)) is not None:
        return Q(task_id=number)
    return Q(task_id__in=list(Task.objects.filter(external_id=value.text).values_list("pk", flat=True)[:MAX_TASKS]))


def _collection(value: Value) -> Q:
    assert isinstance(value, Text)
    number = _reference(value.text)
    return Q(name=value.text) if number is None else Q(pk=number)


def _reference(text: str) -> int | None:
    """Return the id in a reference, for example `#12` or `12`; else None."""
    digits = text.removeprefix("#")
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 20
    return min(int(digits), MAX_ID) if is_number else None


def _cause(value: Value) -> Q:
    return Q(pk__in=RolloutCause.objects.filter(_number("cause_id")(value)).values("rollout_id"))


def _scan(value: Value) -> Q:
    assert isinstance(value, Text)
    given = read_scan_value(value.text)
    assert given is not None
    answers = ScanAnswer.objects.filter(scan=given.scan)
    if given.answer == FAILED_WORD:
        answers = answers.filter(state=ScanAnswer.State.FAILED)
    elif given.number is not None:
        same = Q(answer=given.answer) if given.sign == "=" else Q()
        answers = answers.filter(Q(**{f"number__{_LOOKUPS[given.sign]}": given.number}) | same)
    elif given.answer:
        answers = answers.filter(answer=given.answer)
    return Q(pk__in=answers.values("rollout_id"))


def _flag(value: Value) -> Q:
    assert isinstance(value, Text)
    return FLAGS[value.text]


def _notice(value: Value) -> Q:
    # The first condition is that of the index.
    return ~Q(notices="") & (Q(notices__contains=value.text) if isinstance(value, Text) else Q())


def _text(value: Value) -> Q:
    assert isinstance(value, Text | Pattern)
    return Q(find_text(value.text, begins=isinstance(value, Pattern)))


OF_COLLECTIONS: dict[str, Callable[[Value], Q]] = {
    "collection": _collection,
    "model": _words("policy_model__slug"),
    "agent": _words("agent__slug"),
    "environment": _words("environment__slug"),
    "dataset": _words("dataset__slug"),
}
"""Keys of collections. Matching collections are found first, then rollouts by the id ranges of the collections."""
OF_ROLLOUTS: dict[str, Callable[[Value], Q]] = {
    "text": _text,
    "reward": _number("reward"),
    "status": _words("status"),
    "stop": _words("stop_reason"),
    "error": _words("error_kind"),
    "flag": _flag,
    "notice": _notice,
    "steps": _figure("turns"),
    "calls": _figure("tool_calls"),
    "tool_errors": _figure("tool_errors"),
    "tokens": _tokens,
    "input": _figure("input_tokens"),
    "output": _figure("output_tokens"),
    "sampled": _figure("sampled_tokens"),
    "trainable": _figure("trainable_tokens"),
    "seconds": _figure("duration"),
    "cost": _figure("cost"),
    "attempt": _number("attempt"),
    "tool": _tool,
    "version": _words("model_version"),
    "task": _task,
    "split": _words("task__split"),
    "tag": _tag,
    "cause": _cause,
    "scan": _scan,
    "worker": lambda value: Q(status=Rollout.Status.RUNNING) & _number("lease")(value),
    "id": _number("pk"),
}
_LISTED = {"status": "status", "stop": "stop_reason", "error": "error_kind", "split": "task__split"}


def compile_term(term: Term) -> Q:
    """Return the condition on a rollout, or on its collection for keys in OF_COLLECTIONS."""
    found = _compile_values(term)
    return ~found if term.negated else found


def _compile_values(term: Term) -> Q:
    texts = [value.text for value in term.values if isinstance(value, Text)]
    if term.key in _LISTED and 1 < len(texts) == len(term.values):
        # A single IN list needs one index scan; separate conditions would need one each.
        return Q(**{f"{_LISTED[term.key]}__in": texts})
    compile = OF_COLLECTIONS.get(term.key) or OF_ROLLOUTS[term.key]
    found = Q()
    for value in term.values:
        found |= compile(value)
    return found


def collections_of(terms: list[Term]) -> Any:
    """Return the collections that match these terms."""
    chosen = Collection.objects.all()
    for term in terms:
        chosen = chosen.filter(compile_term(term))
    return chosen
