"""Card on the page of a policy model or environment while its circuit breaker is not closed."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from apps.environments.models import Environment
from apps.policies.models import PolicyModel
from apps.rollouts.steering.holds import find_hold, find_quota, find_throttle


def targets_breaker(request: HttpRequest) -> bool:
    """Return True if htmx requests only the card."""
    return request.headers.get("HX-Target") == "breaker"


def breaker_context(endpoint: PolicyModel | Environment) -> dict[str, Any]:
    return {
        "hold": find_hold(endpoint),
        "throttled": find_throttle(endpoint),
        "quota": find_quota(endpoint),
        "breaker_failures": settings.BREAKER_FAILURES,
    }


def answer_breaker(request: HttpRequest, endpoint: PolicyModel | Environment) -> HttpResponse:
    response = render(request, "_breaker.html", breaker_context(endpoint))
    response["Vary"] = "HX-Request, HX-Target, Cookie"
    return response
