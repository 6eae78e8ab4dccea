"""Create an API key from the command line and print it once."""

from argparse import ArgumentParser, ArgumentTypeError
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from apps.accounts.api_keys import create_api_key
from apps.accounts.models import Scope, User


class Command(BaseCommand):
    help = "Print a new API key of a user, limited to its scopes and the role of the user."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--name", required=True, help="where the key is used, e.g. training-cluster")
        parser.add_argument(
            "--scope",
            action="append",
            required=True,
            choices=Scope.values,
            dest="scopes",
            help="scope; can be repeated",
        )
        parser.add_argument("--days", type=_read_days, default=90, help="days until it expires; 0: never (default: 90)")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["username"], is_active=True).first()
        if user is None:
            raise CommandError(f"Unknown or inactive user {options['username']}.")
        expires_at = timezone.now() + timedelta(days=options["days"]) if options["days"] else None
        _, token = create_api_key(
            user=user, name=options["name"], scopes=sorted(set(options["scopes"])), expires_at=expires_at
        )
        self.stdout.write(token)


def _read_days(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text[:9]) > 3650:
        raise ArgumentTypeError("give a whole number of days, at most 3650")
    return int(text)
