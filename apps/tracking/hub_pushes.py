"""Push exports to the Hugging Face Hub as datasets, in the background.

A push is one commit of the files of the export: rows, dataset card and manifest. If a worker dies before it stores the
result, the push is repeated. The Hub makes no second commit from equal files.
"""

import re
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.job_declarations import background_job
from apps.accounts.models import User
from apps.exports.export_folders import names_in
from apps.exports.models import Export
from apps.gym.errors import PolicyError
from apps.gym.request_refusals import Refusal
from apps.gym.specs import Option, described
from apps.policies.row_checks import find_url_problem
from apps.policies.secrets import decrypt_secret, encrypt_secret
from apps.tracking.client_processes import run_writer
from apps.tracking.models import HubPush
from apps.tracking.page_links import page_link
from apps.tracking.run_batches import TrackerFailed
from apps.tracking.send_leases import claim_due, store_failure, store_success

State = HubPush.State
PUSH_LEASE = timedelta(hours=1)
"""Large exports take long. After this time, the push of a worker that died is repeated."""
PUSH_SECONDS = PUSH_LEASE.total_seconds() - 60
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.\-]{0,95}/[A-Za-z0-9][\w.\-]{0,95}", re.ASCII)


class PushRefused(Refusal, code="push-refused"):
    """Raised if an export cannot be pushed. `argument` is the field to change."""


@dataclass(frozen=True, kw_only=True)
class PushSpec:
    """Options of a push."""

    export: Export = field(metadata=described("Export", "A ready export with rows"))
    repository: Annotated[
        str, Option("Repository", "Owner and name of the dataset", low=1, length=200, example="my-org/rollouts")
    ]
    token: Annotated[
        str,
        Option(
            "Token", "Hugging Face token with write access. Encrypted, and deleted after the push", low=1, length=500
        ),
    ]
    private: Annotated[bool, Option("Private", "If off, everyone can read the repository that this push creates")] = (
        True
    )


def queue_push(spec: PushSpec, *, user: User | None = None) -> HubPush:
    """Queue a push for a worker. Raise PushRefused."""
    export = spec.export
    if export.state != Export.State.READY or export.is_empty or not Path(export.path).is_dir():
        raise PushRefused("Only a ready export with rows, written to a folder, can be pushed.", "export")
    if not _REPOSITORY.fullmatch(spec.repository):
        raise PushRefused("Enter owner and name of the dataset: my-org/rollouts.", "repository")
    push = HubPush(
        export=export,
        repository=spec.repository,
        is_private=spec.private,
        token_encrypted=encrypt_secret(spec.token.strip()),
        created_by=user,
    )
    with transaction.atomic():
        push.save(force_insert=True)
        record(
            user=user,
            action="export.push",
            target=export,
            repository=push.repository,
            private=push.is_private,
        )
    return push


def _pending() -> QuerySet[HubPush]:
    return HubPush.objects.filter(state=State.PENDING)


@background_job(thread="hub_pushes", waiting=_pending)
def push_exports() -> bool:
    """Background job: make the pushes that are due. Return True if there was one."""
    claimed = claim_due(_pending().select_related("export"), most=1, lease=PUSH_LEASE)
    for push in claimed:
        try:
            found = _push(push)
        except TrackerFailed as problem:
            store_failure(_pending(), push, str(problem), is_final=problem.is_final, failed=_ended(State.FAILED))
        else:
            store_success(_pending(), push, {**_ended(State.PUSHED), "url": found["url"], "commit": found["commit"]})
    return bool(claimed)


def _ended(state: str) -> dict[str, object]:
    return {"state": state, "ended_at": timezone.now(), "token_encrypted": ""}


def _push(push: HubPush) -> dict[str, str]:
    export = push.export
    if problem := find_url_problem(settings.HUB_URL):
        raise TrackerFailed(problem, is_final=True)
    try:
        token = decrypt_secret(push.token_encrypted)
    except PolicyError:
        raise TrackerFailed("GYMWEB_SECRET_KEY has changed. Push again.", is_final=True) from None
    if not Path(export.path).is_dir():
        raise TrackerFailed("The files of the export are no longer on the server.", is_final=True)
    request = {
        "address": settings.HUB_URL,
        "secret": token,
        "repository": push.repository,
        "private": push.is_private,
        "folder": export.path,
        "files": names_in(export),
        "message": f"Export {export.pk} of GymWeb {page_link('export_detail', export.pk)}",
    }
    return run_writer("hub_writer", request, seconds=PUSH_SECONDS)
