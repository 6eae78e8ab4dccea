"""Turn off two-factor authentication of a user who has lost the app and the recovery codes."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.accounts.models import User
from apps.accounts.second_factor.authenticator_codes import remove_second_factor


class Command(BaseCommand):
    help = "Turn off two-factor authentication of a user."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["username"]).first()
        if user is None:
            raise CommandError(f"Unknown user {options['username']}.")
        was_on = remove_second_factor(user=user, by=None)
        self.stderr.write(f"Two-factor authentication of {user} {'is now' if was_on else 'was already'} off.")
