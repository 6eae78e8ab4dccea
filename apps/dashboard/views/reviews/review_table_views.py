"""Tables of the items of a queue, of all reviews, and of an annotator's own reviews."""

from django.http import HttpResponse
from django.shortcuts import get_object_or_404

from apps.accounts.permissions import Permission, allow, user_may
from apps.dashboard.chrome.page_answers import answer
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.forms.review_filters import ItemFilterForm, ReviewFilterForm
from apps.dashboard.reviewing.review_words import for_item_rows, for_review_rows, tell_item, tell_own, tell_review
from apps.reviews.models import Queue, QueueItem, Review
from apps.reviews.queues.queue_filters import filter_items, filter_reviews
from apps.reviews.reviews.review_files import FORMATS
from apps.rollouts.search.keyset_pages import page_by_id


@allow(GET=Permission.READ)
def queue_items(request: PageRequest, pk: int) -> HttpResponse:
    queue = get_object_or_404(Queue.objects.select_related("rubric"), pk=pk)
    filters = ItemFilterForm(request.GET)
    items = QueueItem.objects.filter(queue=queue)
    wanted = filters.wanted
    # If a filter is invalid, show nothing; showing everything would look like a result.
    items = items.none() if wanted is None else filter_items(items, wanted)
    page = page_by_id(for_item_rows(items), request.GET.get("after", ""), descending=False)
    rows = [tell_item(item, queue=queue) for item in page.rows]
    context = {"queue": queue, "filters": filters, "page": page, "rows": rows}
    return answer(request, "queues/items.html", context, part="items")


@allow(GET=Permission.READ_QUEUES)
def review_list(request: PageRequest) -> HttpResponse:
    """List all reviews; for annotators, their own without what a queue hides, for example repeats."""
    if not user_may(request.user, Permission.READ):
        own = Review.objects.filter(reviewer=request.user, is_adjudication=False)
        page = page_by_id(own.select_related("queue", "rubric"), request.GET.get("after", ""))
        return answer(request, "reviews/own.html", {"page": page, "rows": map(tell_own, page.rows)}, part="reviews")
    filters = ReviewFilterForm(request.GET)
    wanted = filters.wanted
    reviews = Review.objects.none() if wanted is None else filter_reviews(Review.objects.all(), wanted, reads_all=True)
    page = page_by_id(for_review_rows(reviews), request.GET.get("after", ""))
    context = {
        "filters": filters,
        "page": page,
        "rows": [tell_review(review) for review in page.rows],
        "formats": list(FORMATS),
    }
    return answer(request, "reviews/list.html", context, part="reviews")
