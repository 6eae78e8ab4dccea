from django.urls import include, path

from gymweb.favicon import favicon
from gymweb.health import healthz, readyz

urlpatterns = [
    path("favicon.ico", favicon, name="favicon"),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("api/", include("apps.api.urls")),
    path("", include("apps.dashboard.urls")),
]

handler400 = "gymweb.failures.bad_request"
handler500 = "gymweb.failures.server_error"
