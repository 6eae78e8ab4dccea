"""Print a one-time sign-in link for an existing account."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.accounts.management.sign_in_links import add_link_arguments, link_query, sign_in_url
from apps.accounts.models import User
from apps.accounts.sign_in import create_sign_in_link
from apps.accounts.user_accounts import ManagedByProvider


class Command(BaseCommand):
    help = "Print a one-time sign-in link."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--minutes", type=int, default=60)
        add_link_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["username"], is_active=True).first()
        if user is None:
            raise CommandError(f"Unknown or inactive user {options['username']}.")
        query = link_query(options["next"])
        try:
            token = create_sign_in_link(user=user, minutes=options["minutes"])
        except ManagedByProvider as refused:
            raise CommandError(str(refused)) from None
        self.stdout.write(sign_in_url(options["base_url"], token, query))
