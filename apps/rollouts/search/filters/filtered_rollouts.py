"""From the text of a filter to rollouts: the one way for pages, the API, and whatever keeps a selection."""

from apps.rollouts.models import RolloutQuerySet
from apps.rollouts.search.filters.filter_grammar import Filter, Text
from apps.rollouts.search.filters.filter_parser import parse_filter
from apps.rollouts.search.filters.filter_sql import OF_COLLECTIONS, collections_of, compile_term


def filter_rollouts(rollouts: RolloutQuerySet, text: str) -> RolloutQuerySet:
    """Parse `text` and narrow `rollouts` to those that pass: what queues, exports and other selections call.

    An empty text lets all pass. Raises FilterRefused, which says what is wrong and where, before any query. A filter
    may ask the database which collections it means; the rollouts themselves are read by whoever asked.
    """
    return apply_filter(rollouts, parse_filter(text))


def apply_filter(rollouts: RolloutQuerySet, parsed: Filter) -> RolloutQuerySet:
    """The same for a filter that was parsed."""
    of_collections = [term for term in parsed.terms if term.key in OF_COLLECTIONS]
    if of_collections:
        rollouts = rollouts.of_collections(collections_of(of_collections), version=_one_version(parsed))
    for term in parsed.terms:
        if term.key not in OF_COLLECTIONS:
            rollouts = rollouts.filter(compile_term(term))
    return rollouts


def _one_version(parsed: Filter) -> str:
    """The version of the policy model that all of them have, where the filter names one."""
    for term in parsed.terms:
        match term.values:
            case (Text(text),) if term.key == "version" and not term.negated:
                return text
    return ""
