"""Agents: the harness around the policy model."""

from typing import Any

from django.contrib import messages
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404

from apps.accounts.permissions import Permission, allow
from apps.agents.agent_changes import find_errors, never_send_strict, save_agent
from apps.agents.models import Agent
from apps.dashboard.chrome.page_answers import answer, answer_form, go, posted
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.chrome.row_views import action_view
from apps.dashboard.forms.agent_forms import FILL, AgentForm
from apps.dashboard.forms.fields import add_errors_to_valid_fields, show_errors
from apps.dashboard.forms.verifier_forms import typed
from apps.dashboard.tables.list_tables import AgentListForm, Column, list_rows

_SHOWN_COLLECTIONS = 10


_COLUMNS = [
    Column("Agent", "name"),
    Column("Kind", "kind"),
    Column("Prompt or program"),
    Column("Turns", "turns", "num"),
    Column("Time limit", "time", "num"),
    Column("Collections", "collections", "num"),
    Column("Latest mean reward", "reward", "num"),
    Column("Trend", classes="lesser"),
    Column("Changed", "changed", "lesser"),
]
_KEYS: dict[str, Any] = {
    "kind": lambda agent: agent.get_kind_display(),
    "turns": lambda agent: agent.max_steps,
    "time": lambda agent: agent.time_limit,
    "changed": lambda agent: agent.updated_at,
}


@allow(GET=Permission.READ)
def agent_list(request: PageRequest) -> HttpResponse:
    rows = Agent.objects.annotate(collection_count=Count("collections"))
    context = list_rows(request, rows, AgentListForm(request.GET), _COLUMNS, _KEYS, owner="agent")
    return answer(request, "agents/list.html", context, part="rows")


@allow(GET=Permission.READ)
def agent_detail(request: HttpRequest, slug: str) -> HttpResponse:
    agent = get_object_or_404(Agent, slug=slug)
    collections = agent.collections.select_related("dataset", "policy_model")[:_SHOWN_COLLECTIONS]
    waiting = [collection for collection in collections if not collection.is_finished]
    context = {"agent": agent, "collections": collections, "waiting": waiting}
    return answer(request, "agents/detail.html", context, part="facts")


@allow(GET=Permission.CONFIGURE, POST=Permission.CONFIGURE)
def agent_edit(request: HttpRequest, slug: str = "") -> HttpResponse:
    """Edit the agent, or create one."""
    agent = get_object_or_404(Agent, slug=slug) if slug else Agent()
    form = AgentForm(posted(request), instance=agent)
    if FILL in request.POST:
        kept = typed(form)
        form = AgentForm(instance=agent)
        form.initial.update(kept)
        form.fill(kept["preset"])
    elif form.is_valid():
        with show_errors(form):
            saved = save_agent(agent=form.instance, user=request.user)
            messages.success(request, f"The agent {saved.name} is saved.")
            return go(request, "dashboard:agent_detail", saved.slug)
    elif form.is_bound:
        # Show the errors that saving would raise, too.
        found = find_errors(form.instance)
        add_errors_to_valid_fields(form, {field: problems for field, problems in found.items() if field in form.fields})
    return answer_form(request, "agents/form.html", {"form": form, "agent": agent})


agent_never_strict = action_view(
    Permission.CONFIGURE,
    never_send_strict,
    Agent,
    "agent",
    page="agent_detail",
    success="{0} sends tools without strict from now on. Start a new collection to get trainable tokens.",
)
