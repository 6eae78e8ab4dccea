"""List API keys, or revoke one by its prefix."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.accounts.api_keys import revoke_api_key
from apps.accounts.models import ApiKey


class Command(BaseCommand):
    help = "List active API keys, or revoke the key with this prefix."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("prefix", nargs="?", help="the part between the two underscores of gw_…_…")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["prefix"] is None:
            for usable in ApiKey.objects.usable().select_related("user").order_by("user__username", "id"):
                self.stdout.write(_describe(usable))
            return
        api_key = ApiKey.objects.select_related("user").filter(prefix=options["prefix"]).first()
        if api_key is None:
            raise CommandError(f"Unknown API key prefix {options['prefix']}.")
        was = api_key.state
        revoke_api_key(api_key=api_key, user=None)
        self.stderr.write(f"{api_key} of {api_key.user} {'was already revoked' if was == 'revoked' else 'is revoked'}.")


def _describe(api_key: ApiKey) -> str:
    used = f"{api_key.last_used_at:%F %R} {api_key.last_used_address}".strip() if api_key.last_used_at else "never"
    return "  ".join([api_key.prefix, api_key.user.username, api_key.name, " ".join(api_key.scopes), f"used: {used}"])
