"""Responses of views: a page, or for htmx a fragment of its template; an invalid form with 422; a redirect."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.template import loader
from django.urls import reverse
from django_htmx.http import HttpResponseClientRedirect

from apps.accounts.disk_space import DiskFull
from apps.environments.models import Environment
from apps.gym.request_refusals import Refusal
from apps.policies.models import PolicyModel

POLL_ENDED = 286
"""HTTP status that makes htmx swap the response and stop polling."""


def wants_fragment(request: HttpRequest) -> bool:
    htmx: Any = getattr(request, "htmx", None)
    # Going back in the browser history must load the full page, not a partial.
    return bool(htmx) and not htmx.boosted and not htmx.history_restore_request


def posted(request: HttpRequest) -> QueryDict | None:
    """Return the submitted fields to bind a form, even if there are none; None for other methods."""
    return request.POST if request.method == "POST" else None


def answer(
    request: HttpRequest, template: str, context: dict[str, Any], *, part: str, status: int = 200
) -> HttpResponse:
    """Return the page; for htmx only its partial `part`."""
    name = f"{template}#{part}" if wants_fragment(request) else template
    response = render(request, name, context, status=status)
    response["Vary"] = "HX-Request, Cookie"
    return response


def answer_form(request: HttpRequest, template: str, context: dict[str, Any], *, part: str = "form") -> HttpResponse:
    """Return a form page, with 422 if its form is bound and invalid."""
    return answer(request, template, context, part=part, status=422 if context["form"].is_bound else 200)


def go(request: HttpRequest, to: Any, *args: Any, **kwargs: Any) -> HttpResponse:
    """Redirect to another page; htmx would swap a followed redirect into the form, so it gets a header."""
    response: HttpResponse = redirect(to, *args, **kwargs)
    return HttpResponseClientRedirect(response["Location"]) if wants_fragment(request) else response


@contextmanager
def tell_refusal(request: HttpRequest) -> Iterator[None]:
    """Show a refusal in the block as an error message, then continue after the block.

    A full disk is answered with 507.
    """
    try:
        yield
    except DiskFull:
        raise
    except Refusal as refusal:
        messages.error(request, str(refusal))


def carry_out(
    request: HttpRequest, work: Callable[[], object], *, said: str = "", then: str, refused: str = ""
) -> HttpResponse:
    """Do the work, say so and redirect to `then`; if it is refused, say why and redirect to `refused` (or `then`)."""
    with tell_refusal(request):
        work()
        if said:
            messages.success(request, said)
        return redirect(then)
    return redirect(refused or then)


def answer_health(request: HttpRequest, checked: PolicyModel | Environment, detail: str) -> HttpResponse:
    """Respond to a health check: with its result for htmx, else with a redirect to the page that shows it."""
    if wants_fragment(request):
        context = {"checked": checked, "check_url": request.path, "may_check": True}
        return render(request, "_health.html", {**context, "detail_url": reverse(detail, args=[checked.slug])})
    return redirect(detail, checked.slug)


def render_refusal(title: str, detail: str) -> str:
    """Return the page for a request that was refused before a view ran. It reads no session and no database."""
    return loader.render_to_string("refused.html", {"title": title, "detail": detail})


def answer_full_disk(request: HttpRequest, detail: str) -> HttpResponse:
    """Return a 507: for htmx as text, which it shows above the form, otherwise as a page."""
    status = HTTPStatus.INSUFFICIENT_STORAGE
    if "HX-Request" in request.headers:
        return HttpResponse(detail, status=status, content_type="text/plain; charset=utf-8")
    return HttpResponse(render_refusal("Disk full", detail), status=status)
