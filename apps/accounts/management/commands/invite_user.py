"""Print a one-time invitation link."""

from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse

from apps.accounts.invitations import DEFAULT_DAYS, MOST_DAYS, create_invitation
from apps.accounts.management.sign_in_links import add_base_url
from apps.accounts.models import Role


class Command(BaseCommand):
    help = "Print a one-time link with which a user creates an account. The role is fixed."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--role", choices=Role.values, default=Role.VIEWER)
        parser.add_argument("--email", default="", help="e-mail address of the new account")
        parser.add_argument(
            "--days",
            type=int,
            choices=range(1, MOST_DAYS + 1),
            metavar="DAYS",
            default=DEFAULT_DAYS,
            help=f"days until it expires, 1 to {MOST_DAYS} (default: {DEFAULT_DAYS})",
        )
        add_base_url(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            _, token = create_invitation(role=options["role"], email=options["email"], days=options["days"], by=None)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        path = reverse("dashboard:invitation_accept", args=[token])
        self.stdout.write(options["base_url"].rstrip("/") + path)
