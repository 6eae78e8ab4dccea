"""Import stored rollouts as a collection."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.number_formats import count_words
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.forms.import_forms import ImportForm
from apps.rollouts.imports.rollout_import import import_rollouts
from apps.rollouts.imports.task_matching import BadLine, ImportRefused


@allow(GET=Permission.COLLECT, POST=Permission.COLLECT)
def collection_import(request: PageRequest) -> HttpResponse:
    if request.method != "POST":
        given = {name: request.GET[name] for name in ("dataset", "agent") if name in request.GET}
        return render(request, "collections/import.html", {"form": ImportForm(initial={"agent": "default", **given})})
    form, bad_lines = ImportForm(request.POST, request.FILES), list[BadLine]()
    if form.is_valid():
        try:
            imported = import_rollouts(form.order, files=form.uploaded, user=request.user)
        except ImportRefused as refusal:
            form.add_error("rollout_files", str(refusal))
            bad_lines = refusal.errors
        else:
            if not imported.created:
                messages.info(request, "These files were imported before. This is the existing collection.")
            if imported.superseded:
                failures = count_words(imported.superseded, "failure was", "failures were")
                messages.info(
                    request, f"{failures} left out, because the files also contain finished rollouts for them."
                )
            if imported.renumbered:
                rollouts = count_words(imported.renumbered, "rollout has", "rollouts have")
                told = "a repeat number that is already used, so they got new numbers"
                messages.warning(request, f"{rollouts} {told}. Check whether two files are the same.")
            if imported.repeated:
                lines = count_words(imported.repeated, "line was", "lines were")
                messages.info(request, f"{lines} left out, because they repeat an earlier line of the file.")
            if imported.refused:
                lines = count_words(imported.refused, "line was", "lines were")
                left = ", ".join(f"line {error.line}: {error.message}" for error in imported.errors[:3])
                messages.warning(request, f"{lines} left out, such as {left}.")
            return redirect("dashboard:collection_detail", pk=imported.collection.pk)
    return render(request, "collections/import.html", {"form": form, "bad_lines": bad_lines}, status=422)
