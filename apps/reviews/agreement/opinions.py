"""What people said in a queue that counts as an opinion: submitted, no hidden repeat, no adjudication.

`could_see_results` keeps only the opinions of people who could (True) or could not (False) see results; None keeps all.
"""

from typing import Any

from apps.reviews.models import PairVerdict, Queue, Review


def find_opinions(queue: Queue, *, could_see_results: bool | None = None) -> Any:
    opinions = Review.objects.filter(queue=queue).independent()
    return opinions if could_see_results is None else opinions.filter(could_see_results=could_see_results)


def find_verdicts(queue: Queue, *, could_see_results: bool | None = None) -> Any:
    opinions = find_opinions(queue, could_see_results=could_see_results)
    return PairVerdict.objects.filter(review__in=opinions.values("pk"))
