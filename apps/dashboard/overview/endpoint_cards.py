"""Cards on the page of a policy model or environment: its health, and its circuit breaker while it is not closed."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from apps.dashboard.chrome.page_answers import wants_fragment
from apps.environments.models import Environment
from apps.gym.written.registry import find_environment
from apps.policies.models import PolicyModel
from apps.rollouts.steering.holds import find_hold, find_quota, find_throttle


def can_check(checked: PolicyModel | Environment) -> bool:
    """Return True if a health check tests anything: a server, or what a built-in environment needs on this machine."""
    if checked.has_server or isinstance(checked, PolicyModel):
        return checked.has_server
    return hasattr(find_environment(checked.builtin), "find_problem")


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
    return _answer_card(request, "_breaker.html", breaker_context(endpoint))


def answer_health(
    request: HttpRequest, checked: PolicyModel | Environment, noun: str, *, may_check: bool = True
) -> HttpResponse:
    """Return the health card for htmx, else redirect to the page that shows it."""
    detail = f"dashboard:{noun}_detail"
    if not wants_fragment(request):
        return redirect(detail, checked.slug)
    urls = {"check_url": reverse(f"dashboard:{noun}_check", args=[checked.slug])}
    urls["detail_url"] = reverse(detail, args=[checked.slug])
    return _answer_card(request, "_health.html", {**urls, "checked": checked, "may_check": may_check})


def _answer_card(request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
    response = render(request, template, context)
    response["Vary"] = "HX-Request, HX-Target, Cookie"
    return response
