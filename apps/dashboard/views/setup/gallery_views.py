"""The gallery of in-process environments, each with generated tasks to try it."""

from dataclasses import dataclass
from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_request import PageRequest
from apps.environments.models import Adapter, Environment
from apps.gym.written.registry import find_environment, list_kits, list_names
from apps.tasks.generated_datasets import SAMPLE_TASKS, NoTaskGenerator, ensure_sample, environment_title


@dataclass(frozen=True, slots=True)
class GalleryEntry:
    """`slugs` are the registered environments that use it."""

    name: str
    title: str
    description: str
    tools: list[str]
    slugs: list[str]
    generates: bool


@allow(GET=Permission.READ)
def environment_gallery(request: PageRequest) -> HttpResponse:
    """Show all built-in and custom environments. Environments that generate tasks come first."""
    registered: dict[str, list[str]] = {}
    rows = Environment.objects.filter(adapter=Adapter.BUILTIN).order_by("slug").values_list("builtin", "slug")
    for builtin, slug in rows:
        registered.setdefault(builtin, []).append(slug)
    kits = set(list_kits())
    entries = [
        GalleryEntry(
            name=name,
            title=environment_title(name),
            description=found.description,
            tools=[str(tool["name"]) for tool in found.tools],
            slugs=registered.get(name, []),
            generates=name in kits,
        )
        for name in list_names()
        if (found := find_environment(name))
    ]
    entries.sort(key=lambda entry: not entry.generates)
    return render(request, "environments/gallery.html", {"entries": entries, "sample_tasks": SAMPLE_TASKS})


@allow(POST=Permission.CONFIGURE)
def environment_sample(request: PageRequest, name: str) -> HttpResponse:
    """Load the sample dataset of an environment, then show the form of a new collection with it."""
    try:
        dataset = ensure_sample(name, user=request.user)
    except NoTaskGenerator as unknown:
        raise Http404(str(unknown)) from None
    messages.success(request, f"The dataset {dataset.name} is loaded. Choose a policy model to try it.")
    return redirect(f"{reverse('dashboard:collection_create')}?{urlencode({'dataset': dataset.slug})}")
