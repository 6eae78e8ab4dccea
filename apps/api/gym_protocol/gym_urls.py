"""URLs below `/gym/`, each followed by a route of the protocol."""

from django.urls import URLPattern, path

from apps.api.gym_protocol.gym_views import AgentView, EnvironmentView, ModelView

urlpatterns: list[URLPattern] = []
for prefix, view in (
    ("environments/<slug:slug>/", EnvironmentView),
    ("agents/<slug:agent>/<slug:model>/<slug:environment>/", AgentView),
    ("models/<slug:slug>/", ModelView),
):
    urlpatterns += [path(prefix, view.as_view()), path(f"{prefix}<path:path>", view.as_view())]
