"""Search results for the palette and as a page."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.vary import vary_on_headers

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.finder_entries import MOST_LETTERS, find_everything
from apps.dashboard.chrome.page_answers import wants_fragment
from apps.dashboard.chrome.page_request import PageRequest


@allow(GET=Permission.MEMBER)
@vary_on_headers("HX-Request", "Cookie")
def find(request: PageRequest) -> HttpResponse:
    """Show search results as a page; the palette requests only the options."""
    text = request.GET.get("q", "")[:MOST_LETTERS]
    context = {"text": text, "groups": find_everything(request.user, text), "most_letters": MOST_LETTERS}
    name = "_options" if wants_fragment(request) else "find"
    return render(request, f"finding/{name}.html", context)
