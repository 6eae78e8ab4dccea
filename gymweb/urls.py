from django.urls import include, path

from apps.api.fleet.scraping import MetricsView
from apps.api.mcp_server.mcp_view import McpView
from apps.api.otlp_view import OtlpView
from gymweb.favicon import favicon
from gymweb.health import healthz, readyz

urlpatterns = [
    path("favicon.ico", favicon, name="favicon"),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", MetricsView.as_view(), name="metrics"),
    path("api/", include("apps.api.urls")),
    path("mcp", McpView.as_view(), name="mcp"),
    path("mcp/", McpView.as_view()),
    path("otlp/v1/traces", OtlpView.as_view(), name="otlp_traces"),
    path("gym/", include("apps.api.gym_protocol.gym_urls")),
    path("", include("apps.dashboard.urls")),
]

handler400 = "gymweb.failures.bad_request"
handler500 = "gymweb.failures.server_error"
