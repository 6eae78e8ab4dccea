"""The W&B servers that runs may be sent to: api.wandb.ai, and those of the operator.

The wandb package makes its own connections. It follows redirects, and uploads files to URLs that the server returns.
The outbound policy cannot check these calls, so the server itself must be trusted.
"""

from django.conf import settings

from apps.gym.calls.outbound_policy import OutboundRefused

WANDB_ADDRESS = "https://api.wandb.ai"


def check_wandb_server(url: str) -> None:
    """Raise OutboundRefused if the URL is not exactly one of the allowed servers."""
    if url not in settings.WANDB_SERVERS:
        raise OutboundRefused(
            f"{url} is not an allowed W&B server. Use {WANDB_ADDRESS}, or ask the operator to add the server to "
            "GYMWEB_WANDB_SERVERS."
        )
