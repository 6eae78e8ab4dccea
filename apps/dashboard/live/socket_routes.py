"""URLs of the WebSockets."""

from django.urls import URLPattern, path

from apps.dashboard.live.consumers import CollectionConsumer, RolloutConsumer

websocket_urlpatterns: list[URLPattern] = [
    path("ws/collections/<int:pk>/", CollectionConsumer.as_asgi()),
    path("ws/rollouts/<int:pk>/", RolloutConsumer.as_asgi()),
]
