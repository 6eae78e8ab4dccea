"""What goes on beside the collections, and what needs somebody: the page behind the tray of every page."""

from django.http import HttpResponse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.activity_items import read_happening
from apps.dashboard.chrome.page_answers import answer, wants_fragment
from apps.dashboard.chrome.page_request import PageRequest

POLL_ENDED = 286


@allow(GET=Permission.READ)
def activity(request: PageRequest) -> HttpResponse:
    """htmx gets what the tray holds, and 286 once nothing goes on: it stops asking."""
    happening = read_happening()
    status = POLL_ENDED if wants_fragment(request) and not happening.tasks else 200
    return answer(request, "activity/activity.html", {"happening": happening}, part="tray", status=status)
