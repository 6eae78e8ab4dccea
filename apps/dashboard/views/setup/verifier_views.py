"""Verifiers: list, description, and a form to try one."""

from typing import Any

from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import answer, answer_form, posted
from apps.dashboard.forms.fields import add_errors
from apps.dashboard.forms.verifier_forms import TryVerifierForm, VerifierForm, describe
from apps.dashboard.traces.bodies import pretty
from apps.environments.verifier_cases import try_verifier
from apps.gym.verifiers.examples import EXAMPLES
from apps.gym.verifiers.hybrid import Hybrid
from apps.gym.verifiers.parameters_reader import parameters_schema
from apps.gym.verifiers.registry import VERIFIERS, asks_judge


@allow(GET=Permission.READ)
def verifier_list(request: HttpRequest) -> HttpResponse:
    verifiers = [
        {"type": name, "title": verifier.title, "formula": _paragraphs(name)[0], "fields": _required_fields(name)}
        for name, verifier in VERIFIERS.items()
    ]
    return answer(request, "verifiers/list.html", {"verifiers": verifiers}, part="rows")


@allow(GET=Permission.READ, POST=Permission.CONFIGURE)
def verifier_detail(request: HttpRequest, slug: str) -> HttpResponse:
    if slug not in VERIFIERS:
        raise Http404(f"Unknown verifier: {slug}.")
    schema = parameters_schema(VERIFIERS[slug])
    example = EXAMPLES[slug]
    verifier = VerifierForm(posted(request), fixed=slug, given={"type": slug, **example.parameters})
    form = TryVerifierForm(
        posted(request), initial={"row": example.row, "reply": example.reply, "output": example.output}
    )
    context: dict[str, Any] = {
        "type": slug,
        "title": VERIFIERS[slug].title,
        "paragraphs": _paragraphs(slug),
        "schema": pretty(schema),
        "verifier": verifier,
        "form": form,
        "asks_judge": asks_judge({"type": slug}),
    }
    if verifier.is_valid() and form.is_valid():
        given = form.cleaned_data
        configuration = verifier.configuration()
        try:
            trial = try_verifier(
                verifier=configuration, row=given["row"], reply=given["reply"], output=given["output"] or None
            )
        except ValidationError as wrong:
            verifier.add_problems(wrong)
            if "verifier" not in wrong.message_dict:
                add_errors(form, wrong)
        else:
            details = pretty(trial.reward.details) if trial.reward and trial.reward.details else ""
            context |= {"trial": trial, "details": details, "configuration": pretty(configuration)}
            return answer(request, "verifiers/detail.html", context, part="form")
    return answer_form(request, "verifiers/detail.html", context)


def _paragraphs(name: str) -> list[str]:
    return [" ".join(part.split()) for part in describe(name).split("\n\n")]


def _required_fields(name: str) -> list[str]:
    """Return the row fields that the verifier requires with its default parameters, or in its example.

    Empty for a hybrid, whose parts decide.
    """
    if VERIFIERS[name] is Hybrid:
        return []
    try:
        return sorted(VERIFIERS[name]().needs)
    except TypeError:  # It has parameters without a default.
        return sorted(EXAMPLES[name].row)
