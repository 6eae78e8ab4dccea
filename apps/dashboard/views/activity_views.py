"""Page with background work and alerts, also shown in the status bar of every page."""

from django.http import HttpResponse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.activity_items import read_happening
from apps.dashboard.chrome.page_answers import POLL_ENDED, answer, wants_fragment
from apps.dashboard.chrome.page_request import PageRequest


@allow(GET=Permission.READ)
def activity(request: PageRequest) -> HttpResponse:
    """Show background work. htmx gets the status bar, and 286 to stop polling if nothing is in progress."""
    happening = read_happening()
    status = POLL_ENDED if wants_fragment(request) and not happening.tasks else 200
    return answer(request, "activity/activity.html", {"happening": happening}, part="menu", status=status)
