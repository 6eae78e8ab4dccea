"""Create an account from the command line, with a given password or a one-time sign-in link."""

import os
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from apps.accounts.management.sign_in_links import add_link_arguments, link_query, sign_in_url
from apps.accounts.models import Role, User
from apps.accounts.sign_in import create_sign_in_link
from apps.accounts.user_accounts import create_user


class Command(BaseCommand):
    help = "Create a user. The password comes from GYMWEB_PASSWORD or standard input, or use --link."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--role", choices=Role.values, default=Role.VIEWER)
        parser.add_argument("--email", default="")
        parser.add_argument(
            "--link",
            action="store_true",
            help="print a one-time sign-in link instead of taking a password",
        )
        add_link_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        if User.objects.filter(username=options["username"]).exists():
            raise CommandError(
                f"The user {options['username']} already exists. "
                f"`manage.py sign_in_link {options['username']}` prints a link that signs them in."
            )
        query = link_query(options["next"])
        password = None if options["link"] else _read_password()
        try:
            user = create_user(
                username=options["username"], role=options["role"], email=options["email"], password=password
            )
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        if options["link"]:
            self.stdout.write(sign_in_url(options["base_url"], create_sign_in_link(user=user), query))
        else:
            self.stderr.write(f"Created {user.username} ({user.role}).")


def _read_password() -> str:
    given = os.environ.get("GYMWEB_PASSWORD") or sys.stdin.readline().rstrip("\n")
    if not given:
        raise CommandError("Give a password in GYMWEB_PASSWORD or on standard input, or ask for a --link.")
    return given
