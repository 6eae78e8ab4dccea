"""`/metrics` for Prometheus: all workers, from the database, and this web process's sockets, memory and CPU."""

from collections.abc import Iterator
from typing import Any

from django.http import HttpResponse
from prometheus_client import REGISTRY
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.accounts.permissions import Permission
from apps.api.fleet.prometheus_metrics import expose
from apps.rollouts.metrics.fleet_gauges import read_fleet


class AnyFormat(BaseContentNegotiation):
    """The encoder chooses the format from the Accept header; only problems use the renderers of the API."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return parsers[0]

    def select_renderer(self, request: Request, renderers: Any, format_suffix: Any = None) -> Any:
        return renderers[0], renderers[0].media_type


class Everything:
    """All metrics of a scrape."""

    def collect(self) -> Iterator[Metric]:
        yield from expose(read_fleet())
        yield from REGISTRY.collect()


class MetricsView(APIView):
    permissions = {"get": Permission.READ}
    content_negotiation_class = AnyFormat
    schema = None

    def get(self, request: Request) -> HttpResponse:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return HttpResponse(encode(Everything()), content_type=content_type)
