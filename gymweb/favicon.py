"""Serve /favicon.ico, which browsers request for pages without an icon, such as raw JSON."""

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.templatetags.static import static

from apps.accounts.permissions import Permission, allow


@allow(GET=Permission.PUBLIC)
def favicon(request: HttpRequest) -> HttpResponse:
    return HttpResponseRedirect(static("img/gymweb.svg"), headers={"Cache-Control": "max-age=86400"})
