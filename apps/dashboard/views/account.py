"""One's own account: password and API keys."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from apps.accounts.permissions import Permission, allow


@allow(GET=Permission.OWN_ACCOUNT)
def account(request: HttpRequest) -> HttpResponse:
    return render(request, "account/account.html", {})
