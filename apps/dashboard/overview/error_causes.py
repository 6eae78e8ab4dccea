"""Error kinds of a collection with their most frequent messages."""

from collections import Counter
from typing import Any

from apps.rollouts.models import Collection

_LOOKED_AT = 200


def say_why(collection: Collection, errors: dict[str, int]) -> list[dict[str, Any]]:
    """Return kind and number of the failures, most frequent first, with one query per kind.

    `message` is the most frequent one of the newest rollouts; `others` is True if there are other messages.
    """
    found = []
    for kind, count in sorted(errors.items(), key=lambda each: (-each[1], each[0])):
        failed = collection.rollouts.filter(error_kind=kind).order_by("-id")
        said = Counter(failed.values_list("error_message", flat=True)[:_LOOKED_AT])
        message = said.most_common(1)[0][0] if said else ""
        found.append({"kind": kind, "count": count, "message": message, "others": len(said) > 1})
    return found
