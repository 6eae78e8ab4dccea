"""Limits on failed sign-ins: per account and network, per network, and per account across networks."""

import time
from typing import Literal

from django.http import HttpRequest

from apps.accounts.client_address import client_address, sees_client_addresses
from apps.accounts.models import User
from apps.accounts.sessions.known_devices import find_device
from apps.accounts.tallies import add, forget, network_of

Step = Literal["sign-in", "code", "current password"]

TRIES_PER_NAME = 10
TRIES_PER_ADDRESS = 50
TRIES_WINDOW_SECONDS = 15 * 60

# Requests of single sign-on, two for each sign-in. They store sessions and audit entries, and call the provider.
PROVIDER_REQUESTS_PER_ADDRESS = 600

# Failures of one account within a day, from all networks. Each one beyond FREE_FAILURES doubles the delay.
FREE_FAILURES = 20
FAILURES_WINDOW_SECONDS = 24 * 60 * 60
FIRST_DELAY_SECONDS = 60
LONGEST_DELAY_SECONDS = TRIES_WINDOW_SECONDS
# Longer, because an attacker who guesses codes has the password, and a code has only six digits.
LONGEST_CODE_DELAY_SECONDS = 4 * 60 * 60
_DOUBLINGS = 10


class SignInLimits:
    """The counters of one sign-in attempt. Accounts are counted by id, and unknown names in lower case.

    Known devices of the user have their own counters, so that attackers cannot delay the user. Steps are counted
    separately: a correct password must not reset the count of wrong codes, and strangers must not delay changes that
    ask a signed-in user for the current password.
    """

    def __init__(self, request: HttpRequest, username: str, *, step: Step = "sign-in") -> None:
        self.account = User.objects.filter(username__iexact=username).first()
        network, device = network_of(client_address(request)), find_device(request, self.account)
        self._account = _subject_of(self.account) if self.account else f"name {username.lower()}"
        self._subject = f"device {device}" if device else self._account
        self._step = step
        self._near = f"{step} device {device}" if device else f"{step} {network} {self._account}"
        self._network = f"{step} {network}" if sees_client_addresses() and not device else ""

    def count(self) -> int:
        """Count a try. Return 0 if its password may be checked, else the seconds to wait.

        Counted before the check, so that concurrent tries on several processes do not all pass.
        """
        if seconds := _count(self._near, TRIES_PER_NAME):
            return seconds
        if self._network and (seconds := _count(self._network, TRIES_PER_ADDRESS)):
            return seconds
        return _count_failure(self._step, self._subject)

    def clear(self) -> None:
        """Reset the counts of an account after a successful sign-in."""
        forget(self._near)
        if self._network:
            # Users of an office share an address: successful sign-ins must not use up its tries.
            add(self._network, -1, seconds=TRIES_WINDOW_SECONDS)
        for subject in {self._subject, self._account}:
            _clear_failures(self._step, subject)


def count_provider_request(request: HttpRequest) -> int:
    """Count a request of single sign-on. Return 0 if it is allowed, else the seconds to wait."""
    if not sees_client_addresses():
        return 0
    number, ends_at = add(f"oidc {network_of(client_address(request))}", seconds=TRIES_WINDOW_SECONDS)
    return _seconds_until(ends_at) if number > PROVIDER_REQUESTS_PER_ADDRESS else 0


def clear_account(account: User) -> None:
    """End the delay of an account after its user has signed in without a password."""
    _clear_failures("sign-in", _subject_of(account))


def _subject_of(account: User) -> str:
    return f"account {account.pk}"


def _count(key: str, most: int) -> int:
    number, ends_at = add(key, seconds=TRIES_WINDOW_SECONDS)
    return _seconds_until(ends_at) if number > most else 0


def _count_failure(step: Step, subject: str) -> int:
    failures = add(f"{step}-failures {subject}", seconds=FAILURES_WINDOW_SECONDS).number - FREE_FAILURES
    if failures <= 0:
        return 0
    longest = LONGEST_CODE_DELAY_SECONDS if step == "code" else LONGEST_DELAY_SECONDS
    delay = min(FIRST_DELAY_SECONDS << min(failures - 1, _DOUBLINGS), longest)
    # Only the first try during a delay is checked.
    number, ends_at = add(f"{step}-delay {subject}", seconds=delay)
    if number == 1:
        return 0
    add(f"{step}-failures {subject}", -1, seconds=FAILURES_WINDOW_SECONDS)
    return _seconds_until(ends_at)


def _clear_failures(step: Step, subject: str) -> None:
    forget(f"{step}-failures {subject}")
    forget(f"{step}-delay {subject}")


def _seconds_until(ends_at: int) -> int:
    return max(1, ends_at - int(time.time()))
