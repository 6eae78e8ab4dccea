from django.urls import include, path

from gymweb.health import healthz

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("api/", include("apps.api.urls")),
    path("", include("apps.dashboard.urls")),
]

handler400 = "gymweb.failures.bad_request"
handler500 = "gymweb.failures.server_error"
