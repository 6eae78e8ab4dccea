from django.urls import include, path

from apps.api.fleet.scraping import MetricsView
from gymweb.favicon import favicon
from gymweb.health import healthz, readyz

urlpatterns = [
    path("favicon.ico", favicon, name="favicon"),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", MetricsView.as_view(), name="metrics"),
    path("api/", include("apps.api.urls")),
    path("gym/", include("apps.api.gym_protocol.gym_urls")),
    path("", include("apps.dashboard.urls")),
]

handler400 = "gymweb.failures.bad_request"
handler500 = "gymweb.failures.server_error"
