"""Who says what is said on the command line: somebody who could say it on a page."""

from django.core.management.base import CommandError

from apps.accounts.models import User
from apps.accounts.permissions import Permission, user_may


def find_leader(username: str) -> User:
    user = User.objects.filter(username=username).first()
    if user is None:
        raise CommandError(f"There is nobody called {username}.")
    if not user_may(user, Permission.LEAD):
        raise CommandError(f"{username} may not lead queues: that takes the role of an engineer.")
    return user
