"""List the sessions of a user, or end one or all of them."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.accounts.models import BrowserSession, User
from apps.accounts.sessions.browser_sessions import end_session, end_sessions_of, sessions_of


class Command(BaseCommand):
    help = "List the sessions of a user, or end them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--end", type=int, metavar="ID", help="end the session with this id")
        which.add_argument("--end-all", action="store_true", help="end all sessions of the user")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["username"]).first()
        if user is None:
            raise CommandError(f"Unknown user {options['username']}.")
        if options["end_all"]:
            self.stderr.write(f"Ended {end_sessions_of(person=user, by=None)} sessions of {user}.")
        elif options["end"] is not None:
            self._end(sessions_of(user).filter(pk=options["end"]).first(), user)
        else:
            for session in sessions_of(user):
                self.stdout.write(_describe(session))

    def _end(self, session: BrowserSession | None, user: User) -> None:
        if session is None:
            raise CommandError(f"{user} has no such session. `manage.py sessions {user}` lists them.")
        end_session(session=session, user=None)
        self.stderr.write(f"Ended the session of {user} in {session.device}.")


def _describe(session: BrowserSession) -> str:
    seen = f"last seen {session.last_seen_at:%F %R}"
    return "  ".join([str(session.pk), session.device, session.address or "unknown address", session.method, seen])
