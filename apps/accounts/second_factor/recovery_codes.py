"""Recovery codes: each signs a user in once without their authenticator app."""

import base64
import secrets

from django.db import transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac

from apps.accounts.audit_log import record
from apps.accounts.models import RecoveryCode, User

CODES = 10
_BYTES = 10  # 80 bits, 16 characters
_GROUP = 4
_SALT = "apps.accounts.second_factor.recovery_codes"


@transaction.atomic
def replace_recovery_codes(*, user: User) -> list[str]:
    """Create new codes, which replace all earlier ones. They are not stored in the clear."""
    codes = [base64.b32encode(secrets.token_bytes(_BYTES)).decode().lower() for _ in range(CODES)]
    delete_recovery_codes(user=user)
    RecoveryCode.objects.bulk_create(RecoveryCode(user=user, code_hash=_hash(code)) for code in codes)
    record(user=user, action="second_factor.create_recovery_codes", target=user, codes=CODES)
    return ["-".join(code[at : at + _GROUP] for at in range(0, len(code), _GROUP)) for code in codes]


def delete_recovery_codes(*, user: User) -> None:
    RecoveryCode.objects.filter(user=user).delete()


def use_recovery_code(*, user: User, code: str) -> bool:
    """Use up a code. Return False if it is unknown or used."""
    found = RecoveryCode.objects.filter(user=user, code_hash=_hash(code), used_at=None)
    if not found.update(used_at=timezone.now()):
        return False
    record(user=user, action="second_factor.use_recovery_code", target=user, left=count_recovery_codes(user))
    return True


def count_recovery_codes(user: User) -> int:
    """Return how many unused codes the user has."""
    return RecoveryCode.objects.filter(user=user, used_at=None).count()


def _hash(code: str) -> str:
    # Keyed, so that a stolen database alone does not allow guessing.
    plain = "".join(one for one in code.lower() if one.isascii() and one.isalnum())
    return salted_hmac(_SALT, plain, algorithm="sha256").hexdigest()
