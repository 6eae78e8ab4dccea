"""Whether this process answers, for load balancers and supervisors."""

from django.http import HttpRequest, HttpResponse

from apps.accounts.permissions import Permission, allow


@allow(GET=Permission.PUBLIC)
def healthz(request: HttpRequest) -> HttpResponse:
    """Touches no database: a slow one must not get web processes restarted."""
    return HttpResponse("ok\n", content_type="text/plain; charset=utf-8")
