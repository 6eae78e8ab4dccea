"""Policy models behind an OpenAI-compatible endpoint, without an installation."""

from apps.gym.calls.outbound import Outbound
from apps.gym.wires.openai_http import PATHS, HttpPolicy, Wire
from apps.gym.wires.sending import PlainSender


def plain_policy(
    outbound: Outbound,
    *,
    base_urls: list[str],
    wire: Wire,
    api_key: str = "",
    headers: dict[str, str] | None = None,
    call_timeout: float = 120.0,
    connect_timeout: float = 10.0,
    **options,
) -> HttpPolicy:
    """A policy over the engine's own HTTP client, with the key as a bearer token."""
    sender = PlainSender(
        outbound,
        base_urls=base_urls,
        path=PATHS[wire],
        headers={**(headers or {}), **({"Authorization": f"Bearer {api_key}"} if api_key else {})},
        call_timeout=call_timeout,
        connect_timeout=connect_timeout,
    )
    return HttpPolicy(sender, wire=wire, secrets=[api_key], **options)
