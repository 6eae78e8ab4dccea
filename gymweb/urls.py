from django.urls import include, path

from gymweb.health import healthz

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("api/", include("apps.api.urls")),
    path("", include("apps.dashboard.urls")),
]
