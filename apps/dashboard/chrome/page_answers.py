"""How a view answers: a page or, to htmx, the fragment of the same template; a form error with 422; a redirect."""

from collections.abc import Iterator
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


def wants_fragment(request: HttpRequest) -> bool:
    htmx: Any = getattr(request, "htmx", None)
    # Who goes back in the history wants the page that stood there, not a part of it.
    return bool(htmx) and not htmx.boosted and not htmx.history_restore_request


def posted(request: HttpRequest) -> QueryDict | None:
    """What binds a form: the sent fields, even when there are none."""
    return request.POST if request.method == "POST" else None


def answer(
    request: HttpRequest, template: str, context: dict[str, Any], *, part: str, status: int = 200
) -> HttpResponse:
    """The whole page; only its partial `part` when htmx asks."""
    name = f"{template}#{part}" if wants_fragment(request) else template
    response = render(request, name, context, status=status)
    response["Vary"] = "HX-Request, Cookie"
    return response


def answer_form(request: HttpRequest, template: str, context: dict[str, Any], *, part: str = "form") -> HttpResponse:
    """A form page: 422 when its form is bound and wrong, so that htmx and scripts can tell."""
    status = 422 if context["form"].is_bound else 200
    return answer(request, template, context, part=part, status=status)


def go(request: HttpRequest, to: Any, *args: Any, **kwargs: Any) -> HttpResponse:
    """To another page; htmx would swap a followed redirect into the form, so it is told to leave the page."""
    response: HttpResponse = redirect(to, *args, **kwargs)
    return HttpResponseClientRedirect(response["Location"]) if wants_fragment(request) else response


@contextmanager
def tell_refusal(request: HttpRequest) -> Iterator[None]:
    """Show a refusal of the block as an error message, then continue after the block. A full disk is a 507."""
    try:
        yield
    except DiskFull:
        raise
    except Refusal as refusal:
        messages.error(request, str(refusal))


def answer_health(request: HttpRequest, checked: PolicyModel | Environment, detail: str) -> HttpResponse:
    """After a health check: its result in place, or the page that shows it."""
    if wants_fragment(request):
        context = {"checked": checked, "check_url": request.path, "may_check": True}
        return render(request, "_health.html", {**context, "detail_url": reverse(detail, args=[checked.slug])})
    return redirect(detail, checked.slug)


def render_refusal(title: str, detail: str) -> str:
    """Return the page for a request that was refused before a view ran. It reads no session and no database."""
    return loader.render_to_string("refused.html", {"title": title, "detail": detail})


def answer_full_disk(request: HttpRequest, detail: str) -> HttpResponse:
    """Answer 507: to htmx, which shows it above the form, with plain text; otherwise with a page."""
    status = HTTPStatus.INSUFFICIENT_STORAGE
    if "HX-Request" in request.headers:
        return HttpResponse(detail, status=status, content_type="text/plain; charset=utf-8")
    return HttpResponse(render_refusal("Disk full", detail), status=status)
