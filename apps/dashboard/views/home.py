"""Home: what goes on, what came out, what failed; for an empty place, the first steps."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from apps.accounts.permissions import Permission, allow


@allow(GET=Permission.READ)
def home(request: HttpRequest) -> HttpResponse:
    return render(request, "home/home.html", {})
