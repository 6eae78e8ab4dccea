"""Outgoing calls of this installation: the allow-list, the addresses in use, and a test of one address."""

import ipaddress
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.urls import reverse

from apps.alerts.models import Subscription
from apps.environments.models import OVER_HTTP, Environment
from apps.exports.models import TraceDestination
from apps.gym.calls import lookups
from apps.gym.calls.outbound_policy import OutboundPolicy, OutboundRefused
from apps.policies.models import PolicyModel
from apps.tracking.models import Tracker
from apps.tracking.wandb_servers import check_wandb_server

_MOST_CALLED = 200


def read_entries() -> list[tuple[str, str]]:
    """Return each entry of the allow-list with its meaning."""
    return [(text, _meaning(text)) for text in settings.OUTBOUND_ALLOW]


def _meaning(text: str) -> str:
    if "/" in text:
        network = ipaddress.ip_network(text, strict=False)
        return f"{network.num_addresses:,} address{'es' if network.num_addresses != 1 else ''}, every port"
    host, _, port = text.rpartition(":")
    if text.startswith("["):
        bracketed, _, port = text.rpartition("]")
        host, port = bracketed[1:], port.removeprefix(":")
    elif not port.isdigit() or ":" in host:
        host, port = text, ""
    where = f"port {port} only" if port else "every port"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        also = ", and the addresses of this machine" if host == "localhost" else ""
        return f"any address that this name resolves to{also}; {where}"
    return f"this {'IPv4' if address.version == 4 else 'IPv6'} address; {where}"


def read_called() -> list[dict[str, str]]:
    """Return the addresses that users entered, and why GymWeb would not call them, if that is known.

    Names are resolved when saved and called, not here, so that the page does not wait.
    """
    policy = OutboundPolicy(settings.OUTBOUND_ALLOW)
    models = PolicyModel.objects.exclude(base_url="").only("name", "slug", "base_url", "more_base_urls")
    environments = Environment.objects.filter(adapter__in=OVER_HTTP).only("name", "slug", "base_url")
    trackers = Tracker.objects.exclude(address="").only("name", "kind", "address")
    destinations = TraceDestination.objects.only("name", "url_hint")
    webhooks = Subscription.objects.exclude(channel=Subscription.Channel.EMAIL).only("name", "address_hint")
    called: list[tuple[str, str | int, str, str]] = [
        *(("model_detail", one.slug, one.name, url) for one in models[:_MOST_CALLED] for url in one.base_urls),
        *(("environment_detail", one.slug, one.name, one.base_url) for one in environments[:_MOST_CALLED]),
        *(("trace_edit", one.pk, one.name, one.url_hint) for one in destinations[:_MOST_CALLED]),
        *(("alert_detail", one.pk, one.name, one.address_hint) for one in webhooks[:_MOST_CALLED]),
    ]
    rows = [_row(page, key, name, url, _refusal(policy.check_url, url)) for page, key, name, url in called]
    for one in trackers[:_MOST_CALLED]:
        check = check_wandb_server if one.kind == Tracker.Kind.WANDB else policy.check_url
        rows.append(_row("tracker_edit", one.pk, one.name, one.address, _refusal(check, one.address)))
    return rows


def _row(page: str, key: str | int, name: str, url: str, refusal: str) -> dict[str, str]:
    link = reverse(f"dashboard:{page}", args=[key])
    return {"link": link, "name": name, "address": url, "refusal": refusal}


def _refusal(check: Callable[[str], None], url: str) -> str:
    try:
        check(url)
    except OutboundRefused as refused:
        return str(refused)
    return ""


def try_address(url: str) -> dict[str, Any]:
    """Check an address as on saving: return what its name resolves to, without connecting, or the refusal."""
    policy = OutboundPolicy(settings.OUTBOUND_ALLOW)
    try:
        host, port = policy.host_of(url)
        found = lookups.look_up(host, port)
        policy.check_found(url, found)
    except OutboundRefused as refused:
        return {"address": url, "refusal": str(refused)}
    return {"address": url, "found": found}
