"""Manual attempts at an environment, and test cases of its verifier."""

from collections.abc import Iterable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import answer, answer_form
from apps.dashboard.chrome.page_request import read_number
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.forms.trial_forms import BEGIN, VERIFY, PlayForm
from apps.dashboard.overview.environment_tools import list_tools
from apps.dashboard.traces.card_building import show_events
from apps.environments.manual_attempts import play_session, suggest_row
from apps.environments.models import Environment
from apps.environments.verifier_cases import CasesNotRun, find_cases, prove_environment
from apps.gym.traces.events import TraceUnion, decode_event
from apps.policies.installation_redactor import fresh_redactor
from apps.rollouts.engine.trace_redaction import clean_event
from apps.tasks.models import Task
from apps.tasks.stored_images import full_row


@allow(GET=Permission.READ, POST=Permission.CONFIGURE)
def environment_try(request: HttpRequest, slug: str) -> HttpResponse:
    environment = get_object_or_404(Environment.objects.select_related("judge_model"), slug=slug)
    tools = list_tools(environment)
    if request.method != "POST":
        form = PlayForm(tools=tools, initial={**_first_row(request, environment), "seed": 0})
        return answer_form(request, "environments/try.html", {"form": form, "environment": environment})
    form = PlayForm(request.POST, tools=tools)
    context: dict[str, Any] = {"form": form, "environment": environment}
    if form.is_valid():
        act = request.POST.get("act", BEGIN)
        moves = form.moves_with(act)
        given = form.cleaned_data
        with show_errors(form):
            played = play_session(
                environment=environment,
                row=_exact_row(given["row"], given["task"]),
                moves=moves,
                seed=given["seed"] or 0,
                verify=act == VERIFY,
                user=request.user,
            )
            # The form shows the played moves again, ready for the next one; a verdict ends the attempt.
            kept = {**given, "moves": moves, "answer": given["answer"] if act == VERIFY else ""}
            context["form"] = PlayForm(tools=tools, initial=kept)
            context |= {"played": played, "trace": show_events(_mask(played.events))}
            return answer(request, "environments/try.html", context, part="form")
    return answer_form(request, "environments/try.html", context)


def _exact_row(shown: dict[str, Any], task_id: int | None) -> dict[str, Any]:
    """Return the task's row if the form shows it unedited, because the page masks credentials."""
    task = Task.objects.ready().filter(pk=task_id).first() if task_id else None
    return full_row(task) if task and task.masked_row == shown else shown


def _mask(events: Iterable[TraceUnion]) -> list[TraceUnion]:
    redactor = fresh_redactor()
    return [decode_event(clean_event(event, redactor, None)[0]) for event in events]


def _first_row(request: HttpRequest, environment: Environment) -> dict[str, Any]:
    """Return the masked row and the id of the task in the URL, else of the newest task, else an example row."""
    tasks = Task.objects.ready().filter(dataset__environment=environment).order_by("-pk")
    if (asked := read_number(request.GET.get("task", ""))) is not None:
        tasks = tasks.filter(pk=asked)
    task = tasks.first()
    return {"row": task.masked_row, "task": task.pk} if task else {"row": suggest_row(environment)}


@allow(GET=Permission.READ, POST=Permission.CONFIGURE)
def environment_cases(request: HttpRequest, slug: str) -> HttpResponse:
    environment = get_object_or_404(Environment.objects.select_related("judge_model"), slug=slug)
    context: dict[str, Any] = {"environment": environment, "cases": find_cases(environment)}
    if request.method == "POST":
        try:
            results = prove_environment(environment=environment, user=request.user)
        except CasesNotRun as problem:
            context["problem"] = str(problem)
        else:
            context |= {"results": results, "failed": sum(not result.passed for result in results)}
    return answer(request, "environments/cases.html", context, part="cases")
