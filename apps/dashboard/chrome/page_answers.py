"""Build responses: pages or htmx fragments, invalid forms with status 422, redirects and error messages."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.template import loader
from django_htmx.http import HttpResponseClientRedirect

from apps.accounts.disk_space import DiskFull
from apps.accounts.telemetry.current_request import request_id_of
from apps.gym.request_refusals import Refusal

POLL_ENDED = 286
"""HTTP status that makes htmx swap the response and stop polling."""


def wants_fragment(request: HttpRequest) -> bool:
    """Return True if htmx expects a part of the page. Boosted requests get the full page."""
    htmx: Any = getattr(request, "htmx", None)
    # If the browser goes back to a page that htmx has not cached, htmx requests the full page.
    return bool(htmx) and not htmx.boosted and not htmx.history_restore_request


def posted(request: HttpRequest) -> QueryDict | None:
    """Return the data to bind a form to: the body of a POST, which may be empty, or None for other methods."""
    return request.POST if request.method == "POST" else None


def answer(
    request: HttpRequest, template: str, context: dict[str, Any], *, part: str, status: int = 200
) -> HttpResponse:
    """Return the page, or for htmx only the template partial named `part`."""
    name = f"{template}#{part}" if wants_fragment(request) else template
    response = render(request, name, context, status=status)
    response["Vary"] = "HX-Request, Cookie"
    return response


def answer_form(request: HttpRequest, template: str, context: dict[str, Any], *, part: str = "form") -> HttpResponse:
    """Return a form page, with 422 if the form is bound. Redirect after a valid one instead."""
    return answer(request, template, context, part=part, status=422 if context["form"].is_bound else 200)


def go(request: HttpRequest, to: Any, *args: Any, **kwargs: Any) -> HttpResponse:
    """Redirect to another page; arguments as for django.shortcuts.redirect.

    htmx gets a header instead of status 302. It would follow a 302 and put the other page into the form.
    """
    response: HttpResponse = redirect(to, *args, **kwargs)
    return HttpResponseClientRedirect(response["Location"]) if wants_fragment(request) else response


@contextmanager
def show_refusal(request: HttpRequest) -> Iterator[None]:
    """Show a Refusal raised in the block as an error message, and continue after the block.

    DiskFull is re-raised, for the page with status 507 (gymweb/failures.py).
    """
    try:
        yield
    except DiskFull:
        raise
    except Refusal as refusal:
        messages.error(request, str(refusal))


def carry_out(
    request: HttpRequest, work: Callable[[], object], *, success: str = "", then: str, refused: str = ""
) -> HttpResponse:
    """Call `work`, show the message `success` and redirect to the URL `then`.

    If `work` raises a Refusal, show its reason instead and redirect to the URL `refused` (default: `then`).
    """
    with show_refusal(request):
        work()
        if success:
            messages.success(request, success)
        return redirect(then)
    return redirect(refused or then)


def render_bare(template: str, request: HttpRequest, status: HTTPStatus) -> HttpResponse:
    """Return an error page without context processors: they read the database, which may be unavailable."""
    return HttpResponse(loader.render_to_string(template, {"request_id": request_id_of(request)}), status=status)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Return 403 for a form with a missing or wrong CSRF token. Django logs the `reason`."""
    return render_bare("403_csrf.html", request, HTTPStatus.FORBIDDEN)


def render_refusal(title: str, detail: str, *, request_id: str) -> str:
    """Return the page for a request refused before a view ran. The page uses neither session nor database."""
    return loader.render_to_string("refused.html", {"title": title, "detail": detail, "request_id": request_id})


def answer_refusal(request: HttpRequest, status: HTTPStatus, title: str, detail: str) -> HttpResponse:
    """Return the error: as text for htmx, which shows it above the form, otherwise as a page."""
    if "HX-Request" in request.headers:
        return HttpResponse(detail, status=status, content_type="text/plain; charset=utf-8")
    page = render_refusal(title, detail, request_id=request_id_of(request))
    return HttpResponse(page, status=status)
