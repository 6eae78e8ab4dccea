"""Outgoing calls of this installation: the allow-list, the addresses in use, and a test of one address."""

import ipaddress
from typing import Any

from django.conf import settings

from apps.environments.models import OVER_HTTP, Environment
from apps.gym.calls import lookups
from apps.gym.calls.outbound_policy import OutboundPolicy, OutboundRefused
from apps.policies.models import PolicyModel

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
    """Return the addresses in use by models and environments, and why they would not be called, if that is known.

    Names are resolved when saved and called, not here, so that the page does not wait.
    """
    policy = OutboundPolicy(settings.OUTBOUND_ALLOW)
    models = PolicyModel.objects.exclude(base_url="").only("name", "slug", "base_url", "more_base_urls")
    environments = Environment.objects.filter(adapter__in=OVER_HTTP).only("name", "slug", "base_url")
    called: list[tuple[str, PolicyModel | Environment, str]]
    called = [("dashboard:model_detail", each, url) for each in models[:_MOST_CALLED] for url in each.base_urls]
    called += [("dashboard:environment_detail", each, each.base_url) for each in environments[:_MOST_CALLED]]
    return [
        {"page": page, "name": each.name, "slug": each.slug, "address": url, "refusal": _refusal(policy, url)}
        for page, each, url in called
    ]


def _refusal(policy: OutboundPolicy, url: str) -> str:
    try:
        policy.check_url(url)
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
