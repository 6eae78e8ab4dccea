"""Register NeMo Gym configurations: paste, preview, confirm."""

from collections import Counter

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.forms.gym_config_forms import GymConfigForm
from apps.gym.gymconfig.merging import ConfigRefused
from apps.rollouts.imports.gym_config_import import Registered, register_pasted

_PAGE = "environments/import.html"


@sensitive_post_parameters("text")
@allow(GET=Permission.CONFIGURE, POST=Permission.CONFIGURE)
def gym_config_import(request: PageRequest) -> HttpResponse:
    if request.method != "POST":
        return render(request, _PAGE, {"form": GymConfigForm()})
    form = GymConfigForm(request.POST, request.FILES)
    if not form.is_valid():
        return render(request, _PAGE, {"form": form}, status=422)
    wanted = "register" in request.POST
    if wanted and form.was_previewed:
        try:
            registered = register_pasted(**form.wish, user=request.user)
        except ConfigRefused:
            # Changes since the preview show in the new preview.
            pass
        else:
            messages.success(request, f"Registered: {_count(registered)}.")
            return redirect("dashboard:environment_list")
    found = register_pasted(**form.wish, preview=True, user=request.user)
    context = {"form": form.again(), "found": found, "changed": wanted, "counted": _count(found)}
    return render(request, _PAGE, context, status=422 if found.problems else 200)


def _count(registered: Registered) -> str:
    counts = Counter(line.outcome for line in registered.lines)
    return ", ".join(f"{number} {outcome}" for outcome, number in counts.items()) or "nothing"
