"""Search in the list of exports. Page and API use the same."""

from django.db.models import Q, QuerySet

from apps.exports.models import Export
from apps.gym.exporters.registry import FORMATS
from apps.rollouts.search.list_search import match_number, match_word

_SEARCHED = (
    "format",
    "encoding",
    "collection__name",
    "collection__dataset__name",
    "collection__dataset__slug",
    "pair_set__name",
    "created_by__username",
)


def search_exports(exports: QuerySet[Export], text: str) -> QuerySet[Export]:
    """Return the exports that have every word of the text in a searched field or in the title of their format.

    A word `#7` or `7` also finds the export with that number.
    """
    for word in text.split():
        titled = [slug for slug, format in FORMATS.items() if word.casefold() in format.title.casefold()]
        exports = exports.filter(match_word(word, _SEARCHED) | match_number(word) | Q(format__in=titled))
    return exports
