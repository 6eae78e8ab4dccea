from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone

from apps.accounts.shared_columns import Dated
from apps.accounts.stored_json import StoredJSONField
from apps.gym.user_names import find_mixed_alphabets, simplify_name


class Role(models.TextChoices):
    """Roles of users. Their permissions are in apps/accounts/permissions.py.

    A viewer reads all data but cannot review. An annotator reviews, and reads only their own queues and reviews. An
    engineer reads all data, reviews, and changes most objects. Only admins manage users and
    retention, and read the audit log.
    """

    VIEWER = "viewer", "Viewer"
    ANNOTATOR = "annotator", "Annotator"
    ENGINEER = "engineer", "Engineer"
    ADMIN = "admin", "Admin"


class Scope(models.TextChoices):
    """Scopes of API keys. Their permissions are in apps/accounts/permissions.py."""

    ROLLOUTS_READ = "rollouts:read", "Read everything"
    TASKS_WRITE = "tasks:write", "Read, upload and change datasets and tasks"
    ROLLOUTS_RUN = "rollouts:run", "Read everything, plan and control collections, and stream rollouts to a trainer"
    ANNOTATE = "annotate", "Read everything, review, comment and flag, and manage queues"
    EXPORT = "export", "Read everything, build pairs, create and download exports"
    ADMIN = "admin", "Everything that your role allows, except users and keys"


class User(AbstractUser):
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER)
    is_suspended = models.BooleanField(
        default=False, help_text="Deactivated at a sign-in because the identity provider grants no role"
    )
    keymap = models.JSONField(
        default=dict, blank=True, help_text="Custom keyboard shortcuts by command; empty: defaults"
    )
    tables = models.JSONField(
        default=dict, blank=True, help_text="Table settings by name: {columns, density}; empty: defaults"
    )

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="user_role_known"),
            # A user name that differs from another only by case could be used to impersonate that user.
            models.UniqueConstraint(Lower("username"), name="user_name_once_in_any_case"),
        ]

    def __str__(self) -> str:
        return self.username

    def clean(self) -> None:
        super().clean()
        if User.objects.filter(username__iexact=self.username).exclude(pk=self.pk).exists():
            raise ValidationError({"username": ValidationError("This user name is taken.", code="unique")})
        # Accounts keep the names that they have.
        if self._state.adding and (problem := self.find_look_alike()):
            raise ValidationError({"username": ValidationError(problem, code="look_alike")})

    def find_look_alike(self) -> str:
        """Return why the user name could be mistaken for another one, or an empty string."""
        if problem := find_mixed_alphabets(self.username):
            return problem
        wanted = simplify_name(self.username)
        names = User.objects.values_list("username", flat=True)
        alike = next((name for name in names if simplify_name(name) == wanted), None)
        return "" if alike is None else f"It looks like the name of the user “{alike}”. Choose another one."


def user_column(related_name: str = "+", *, editable: bool = True) -> "models.ForeignKey[User | None, User | None]":
    """Return a column for the user who did something. It is null after the user is deleted."""
    return models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        editable=editable,
        on_delete=models.SET_NULL,
        related_name=related_name,
    )


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def usable(self) -> "ApiKeyQuerySet":
        """Return keys that are neither revoked nor expired, and whose owner is active.

        With GYMWEB_OIDC_KEY_DAYS, the owner must also have signed in within that many days.
        """
        now = timezone.now()
        unexpired = models.Q(expires_at__isnull=True) | models.Q(expires_at__gt=now)
        usable = self.filter(unexpired, revoked_at__isnull=True, user__is_active=True)
        if days := settings.OIDC.key_days:
            # Only a sign-in proves that the identity provider still accepts the user.
            inactive = User.objects.filter(socialaccount__isnull=False, last_login__lt=now - timedelta(days=days))
            usable = usable.exclude(user__in=inactive)
        return usable


def known_scopes(value: object) -> None:
    """Validate a list of scope names: at least one, without duplicates."""
    if not isinstance(value, list) or not value:
        raise ValidationError(f"Give at least one scope: {', '.join(Scope.values)}.", code="required")
    if unknown := [one for one in value if one not in Scope.values]:
        raise ValidationError(
            f"Unknown scope “{unknown[0]}”. Choose one of: {', '.join(Scope.values)}.", code="unknown"
        )
    if len(set(value)) < len(value):
        raise ValidationError("A scope is repeated. Give each scope once.", code="twice")


KEY_STATES = ["usable", "expired", "revoked"]


class ApiKey(Dated):
    """An API key, sent as a bearer token `gw_<prefix>_<secret>`. Only the SHA-256 of the secret is stored."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16, unique=True)
    secret_hash = models.CharField(max_length=64)
    scopes = models.JSONField(validators=[known_scopes])
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    last_used_address = models.CharField(max_length=64, blank=True)

    objects = ApiKeyQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.name} (gw_{self.prefix}_…)"

    @property
    def state(self) -> str:
        """Return one of KEY_STATES. `usable()` also checks the owner."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= timezone.now() else "usable"


class SavedViewQuerySet(models.QuerySet["SavedView"]):
    def seen_by(self, user: User) -> "SavedViewQuerySet":
        """Return the user's own views and shared views."""
        return self.filter(models.Q(user=user) | models.Q(is_shared=True))


class SavedView(Dated):
    """A saved filter, order and column choice of the table named `table`. Each table has its own syntax for them."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="saved_views")
    table = models.CharField(max_length=32, default="rollouts")
    name = models.CharField(max_length=100)
    query = models.CharField(max_length=2000, blank=True)
    sort = models.CharField(max_length=32, blank=True)
    columns = models.JSONField(default=list, blank=True)
    is_shared = models.BooleanField(default=False)

    objects = SavedViewQuerySet.as_manager()

    class Meta:
        ordering = ["name", "id"]
        constraints = [models.UniqueConstraint(fields=["user", "table", "name"], name="saved_view_name_once")]

    def __str__(self) -> str:
        return self.name


def _created_by_admin() -> models.Q:
    """Return a condition: created by an active admin, or by a command on the server, which has no user."""
    return models.Q(created_by=None) | models.Q(created_by__is_active=True, created_by__role=Role.ADMIN)


class SignInLinkQuerySet(models.QuerySet["SignInLink"]):
    def open(self) -> "SignInLinkQuerySet":
        """Return usable links. If a user created the link, that user must still be an active admin."""
        unused = self.filter(used_at=None, expires_at__gt=timezone.now(), user__is_active=True)
        return unused.filter(_created_by_admin())


class SignInLink(Dated):
    """A one-time sign-in link; only the SHA-256 of its token is stored."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="sign_in_links")
    token_hash = models.CharField(max_length=64, unique=True)
    created_by = models.ForeignKey(User, null=True, on_delete=models.CASCADE, related_name="+")
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    objects = SignInLinkQuerySet.as_manager()

    def __str__(self) -> str:
        return f"sign-in link of {self.user}"


class InvitationQuerySet(models.QuerySet["Invitation"]):
    def open(self) -> "InvitationQuerySet":
        """Return invitations that can be accepted. If a user created one, that user must still be an active admin."""
        return self.filter(_created_by_admin(), accepted_at=None, revoked_at=None, expires_at__gt=timezone.now())


INVITATION_STATES = ["open", "accepted", "revoked", "expired"]


class Invitation(Dated):
    """A one-time invitation with a fixed role. Only the SHA-256 of its token is stored."""

    email = models.EmailField(blank=True, help_text="E-mail address of the new account")
    role = models.CharField(max_length=16, choices=Role.choices, help_text="Role of the new account")
    token_hash = models.CharField(max_length=64, unique=True)
    created_by = models.ForeignKey(User, null=True, on_delete=models.CASCADE, related_name="invitations")
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    accepted_by = models.OneToOneField(User, null=True, on_delete=models.CASCADE, related_name="invitation")
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = InvitationQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="invitation_role_known"),
            models.CheckConstraint(
                condition=models.Q(accepted_at=None) | models.Q(revoked_at=None), name="invitation_ends_once"
            ),
        ]

    def __str__(self) -> str:
        return f"invitation {self.pk}"

    @property
    def state(self) -> str:
        """Return one of INVITATION_STATES."""
        if self.accepted_at is not None:
            return "accepted"
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at <= timezone.now() else "open"


class SecondFactor(Dated):
    """The authenticator app of a user, with an encrypted TOTP secret. Every sign-in needs it after `confirmed_at`."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="second_factor")
    secret_encrypted = models.CharField(max_length=255)
    confirmed_at = models.DateTimeField(null=True, blank=True)
    last_step = models.BigIntegerField(
        default=0, help_text="Time step of the last accepted code; later sign-ins need a later one"
    )

    def __str__(self) -> str:
        return f"authenticator app of {self.user}"


class RecoveryCode(Dated):
    """A one-time code for users without their authenticator app. Only a keyed hash is stored."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="recovery_codes")
    code_hash = models.CharField(max_length=64)
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "code_hash"], name="recovery_code_once")]

    def __str__(self) -> str:
        return f"recovery code of {self.user}"


class SignInMethod(models.TextChoices):
    PASSWORD = "password", "Password"
    LINK = "link", "Sign-in link"
    INVITATION = "invitation", "Invitation"
    PROVIDER = "provider", "Identity provider"
    UNKNOWN = "unknown", "Unknown"


class BrowserSession(models.Model):
    """A signed-in browser. Deleting the Django session signs it out and deletes this row."""

    session = models.OneToOneField(Session, on_delete=models.CASCADE, related_name="browser")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="sessions")
    method = models.CharField(max_length=16, choices=SignInMethod.choices, default=SignInMethod.UNKNOWN)
    device = models.CharField(max_length=200, blank=True, help_text="Browser and operating system")
    address = models.CharField(max_length=64, blank=True, help_text="Last client address")
    created_at = models.DateTimeField(default=timezone.now)
    last_seen_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"session {self.pk}"


class AuditEntryQuerySet(models.QuerySet["AuditEntry"]):
    def with_actors(self) -> "AuditEntryQuerySet":
        """Read user and API key of each entry in the same query."""
        return self.select_related("user", "api_key")


class AuditEntry(models.Model):
    """An entry of the audit log. Entries are never changed. `action` is `noun.verb`; `noun` is its first part."""

    user = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="audit_entries")
    api_key = models.ForeignKey(ApiKey, null=True, on_delete=models.SET_NULL, related_name="+")
    action = models.CharField(max_length=64)
    noun = models.CharField(max_length=64)
    target = models.CharField(max_length=200, blank=True)
    before = StoredJSONField(default=dict, blank=True)
    after = StoredJSONField(default=dict, blank=True)
    detail = StoredJSONField(default=dict, blank=True)
    origin = models.CharField(max_length=64, blank=True, help_text="page, api or command")
    address = models.CharField(max_length=64, blank=True)
    request_id = models.CharField(max_length=64, blank=True, db_default="", default="", help_text="X-Request-ID")
    at = models.DateTimeField(auto_now_add=True)

    objects = AuditEntryQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        # One index per filter of the log, newest first.
        indexes = [
            models.Index(fields=["user", "-id"], name="audit_user"),
            models.Index(fields=["noun", "-id"], name="audit_noun"),
            models.Index(fields=["action", "-id"], name="audit_action"),
            models.Index(fields=["at", "-id"], name="audit_at"),
        ]

    def __str__(self) -> str:
        return f"{self.at:%F %T} {self.user} {self.action} {self.target}"


class Tally(models.Model):
    """A rate-limit counter: events of one subject within a period, for example sign-in attempts. The key is a hash."""

    key = models.CharField(max_length=64, primary_key=True)
    count = models.IntegerField()
    ends_at = models.BigIntegerField(db_index=True, help_text="Seconds since 1970")

    def __str__(self) -> str:
        return f"{self.key[:8]}… {self.count}"


class KeptAnswer(models.Model):
    """The stored response of a request with an Idempotency-Key.

    `status` is null while the first request is in progress. `fingerprint` is a hash of that request.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=128)
    fingerprint = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(null=True)
    body = models.TextField(blank=True, default="")
    location = models.CharField(max_length=200, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="kept_answer_once_a_key")]

    def __str__(self) -> str:
        return f"{self.key} of {self.user_id}"
