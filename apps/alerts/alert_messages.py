"""The content of alerts: the body of a webhook, the text for chat, and the e-mail."""

import orjson
from django.conf import settings
from django.core.mail import EmailMessage

from apps.alerts.models import Event


def page_url(event: Event) -> str:
    """Return the URL of the event's page; without GYMWEB_PUBLIC_URL, only its path."""
    return f"{settings.PUBLIC_URL}{event.path}"


def webhook_body(event: Event) -> bytes:
    data = {"text": event.text, "url": page_url(event), **event.data}
    return orjson.dumps({"type": event.kind, "timestamp": event.created_at, "data": data})


def slack_body(event: Event) -> bytes:
    # Slack reads these three characters as markup.
    text = event.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return orjson.dumps({"text": f"{text}\n{page_url(event)}"})


def email_message(event: Event, address: str) -> EmailMessage:
    return EmailMessage(
        subject=f"GymWeb: {event.text}",
        body=f"{event.text}\n\n{page_url(event)}\n",
        to=[address],
        # The same for all retries, so that mail programs can recognise a duplicate.
        headers={"Message-ID": f"<{event.id}@gymweb>", "Auto-Submitted": "auto-generated"},
    )
