"""Who says what is said on the command line: somebody who could say it on a page."""

from django.core.management.base import CommandError

from apps.accounts.models import Role, User
from apps.accounts.permissions import ROLE_PERMISSIONS, Permission, user_may

_DOES = {
    Permission.COMMENT: "comment on, flag or score rollouts",
    Permission.REVIEW: "review",
    Permission.LEAD: "lead queues",
    Permission.PAIR: "build pairs",
}


def find_person(username: str | None, permission: Permission) -> User:
    """Raises CommandError where nobody is named, or somebody who is unknown or may not do this."""
    if not username:
        raise CommandError("Say who: --by NAME.")
    user = User.objects.filter(username=username).first()
    if user is None:
        raise CommandError(f"There is nobody called {username}.")
    if not user_may(user, permission):
        role = next(Role(one).label for one in Role.values if permission in ROLE_PERMISSIONS[one])
        raise CommandError(f"{username} may not {_DOES[permission]}: that takes the role of an {role.lower()}.")
    return user


def find_people(usernames: list[str]) -> list[User]:
    """Raises CommandError for the first that is unknown."""
    people = {each.username: each for each in User.objects.filter(username__in=usernames)}
    if unknown := [name for name in usernames if name not in people]:
        raise CommandError(f"There is nobody called {unknown[0]}.")
    return list(people.values())
