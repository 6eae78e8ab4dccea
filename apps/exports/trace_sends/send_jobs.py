"""Send queued traces in the background, in batches. An interrupted send continues after its last stored batch."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import islice
from pathlib import Path
from typing import Any

from django.db.models import F
from django.utils import timezone
from yarl import URL

from apps.accounts.job_declarations import background_job
from apps.accounts.job_retries import FIRST_WAIT, GIVE_UP_AFTER, LONGEST_WAIT, is_due, progress_fields
from apps.exports.export_folders import rows_path
from apps.exports.models import Export, TraceSend
from apps.exports.trace_sends.destination_changes import open_destination
from apps.exports.trace_sends.otlp_requests import (
    MISSING,
    Rejected,
    count_spans,
    encode_request,
    read_response,
)
from apps.gym import process_exit
from apps.gym.calls.outbound import Outbound, OutboundFailed, OutboundReply
from apps.gym.calls.outbound_policy import OutboundRefused
from apps.gym.errors import PolicyError
from apps.gym.redaction.header_secrets import header_secrets, mask_secrets
from apps.gym.redaction.shortening import cut_clean
from apps.gym.rollout_files.otlp_protobuf import is_installed
from apps.policies.policy_clients import open_outbound
from apps.tasks.fenced_jobs import Attempt, claim, requeue_unresponsive

State = TraceSend.State
BATCH_TRACES = 64
BATCH_BYTES = 2 * 1024**2
SEND_SECONDS = 60.0
MAX_REPLY_BYTES = 1024**2
MAX_SHOWN_BYTES = 64 * 1024
LONGEST_PAUSE = timedelta(minutes=10)
TOO_LARGE = 413
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})


class SendFailed(Exception):
    """Raised if the receiver refused the traces. Retrying does not help."""


class SendDelayed(Exception):
    """Raised if the receiver cannot take the traces now. `wait` is the time that it asked for."""

    def __init__(self, message: str, wait: timedelta | None = None) -> None:
        super().__init__(message)
        self.wait = wait


@background_job(
    thread="traces",
    waiting=lambda: TraceSend.objects.filter(state__in=[State.QUEUED, State.SENDING]),
)
def send_queued_traces() -> bool:
    """Background job: send the traces of one export. Return True if there was one."""
    requeue_unresponsive(TraceSend.objects.filter(state=State.SENDING), queued=State.QUEUED)
    queued = TraceSend.objects.filter(state=State.QUEUED)
    send = queued.filter(is_due()).order_by("id").first()
    if send is None:
        return False
    if attempt := claim(queued, send.pk, doing=State.SENDING, queued=State.QUEUED):
        with attempt.store_errors():
            try:
                _send_all(attempt)
            except SendDelayed as delayed:
                _retry_later(attempt, delayed)
            except (SendFailed, PolicyError) as problem:
                _fail(attempt, str(problem))
    return True


def _send_all(attempt: Attempt) -> None:
    send = TraceSend.objects.select_related("export", "destination").get(pk=attempt.pk)
    if not is_installed():
        raise SendFailed(MISSING)
    url, headers = open_destination(send.destination)
    with asyncio.Runner() as runner:
        outbound = open_outbound()
        receiver = _Receiver(runner, outbound, url, headers)
        try:
            for lines in _batches(islice(_lines(send.export), send.sent, None)):
                process_exit.check()
                traces = [json.loads(line) for line in lines]
                rejected = receiver.send(traces)
                attempt.write(
                    **progress_fields(),
                    sent=F("sent") + len(traces),
                    spans=F("spans") + sum(map(count_spans, traces)),
                    rejected_spans=F("rejected_spans") + rejected.spans,
                    **(
                        {"message": cut_clean(f"The receiver reported: {rejected.message}", 500)}
                        if rejected.message
                        else {}
                    ),
                )
        finally:
            runner.run(outbound.close())
    attempt.write(state=State.SENT, finished_at=timezone.now(), failing_since=None)


def _lines(export: Export) -> Iterator[bytes]:
    """Yield the traces of the export. The order never changes, because its files do not."""
    for file in export.files:
        path = rows_path(export, file["name"])
        if not path.is_file():
            raise SendFailed(f"The file {Path(path).name} of export #{export.pk} is no longer on the server.")
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as rows:
            yield from rows


def _batches(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and (len(batch) >= BATCH_TRACES or size + len(line) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield batch


class _Receiver:
    """Sends requests to one destination. Used in one thread."""

    def __init__(self, runner: asyncio.Runner, outbound: Outbound, url: str, headers: dict[str, str]) -> None:
        self._runner, self._outbound, self._url = runner, outbound, url
        self._secrets = header_secrets(headers.values())
        own = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
        self._headers = {**headers, **own}

    def send(self, traces: list[dict[str, Any]]) -> Rejected:
        """Send the traces and return the rejected spans. Raise SendFailed or SendDelayed.

        A request that is too large is sent in halves. A single trace that is too large is rejected.
        """
        reply = self._post(gzip.compress(encode_request(traces), compresslevel=5))
        if 200 <= reply.status < 300:
            rejected = read_response(reply.body)
            return rejected._replace(message=self._hide(rejected.message))
        if reply.status == TOO_LARGE and len(traces) > 1:
            middle = len(traces) // 2
            first, second = self.send(traces[:middle]), self.send(traces[middle:])
            return Rejected(first.spans + second.spans, first.message or second.message)
        if reply.status == TOO_LARGE:
            return Rejected(
                count_spans(traces[0]), "A trace is too large. Create the export again with fewer messages."
            )
        told = self._hide(reply.body[:MAX_SHOWN_BYTES].decode(errors="replace"))
        problem = f"The receiver returned {reply.status}: {cut_clean(told, 300).strip()}"
        if reply.status in _RETRIED:
            raise SendDelayed(problem, _read_wait(reply))
        raise SendFailed(problem)

    def _post(self, body: bytes) -> OutboundReply:
        request = self._outbound.request(
            "POST", self._url, body=body, headers=self._headers, timeout=SEND_SECONDS, max_bytes=MAX_REPLY_BYTES
        )
        try:
            return self._runner.run(request)
        except OutboundFailed as problem:
            raise SendDelayed(self._hide(str(problem))) from None
        except OutboundRefused as problem:
            raise SendFailed(self._hide(str(problem))) from None

    def _hide(self, text: str) -> str:
        """Remove the path of the URL and the values of the headers, which may be tokens."""
        url = URL(self._url)
        paths = [one for one in (url.raw_path_qs, url.raw_path) if len(one) > 1]
        return mask_secrets(text, [*paths, *self._secrets])


def _read_wait(reply: OutboundReply) -> timedelta | None:
    """Return the time of a Retry-After header, in seconds or as a date."""
    given = reply.headers.get("Retry-After", "").strip()
    if given.isascii() and given.isdigit():
        return min(timedelta(seconds=int(given[:9])), LONGEST_PAUSE)
    try:
        until = parsedate_to_datetime(given)
        return max(timedelta(), min(until - timezone.now(), LONGEST_PAUSE))
    except (ValueError, TypeError):
        return None


def _retry_later(attempt: Attempt, delayed: SendDelayed) -> None:
    """Requeue the send with increasing waits. It fails after GIVE_UP_AFTER without progress."""
    now = timezone.now()
    since: datetime = attempt.owned.values_list("failing_since", flat=True).first() or now
    if now - since > GIVE_UP_AFTER:
        _fail(attempt, f"No progress for an hour. {delayed}")
        return
    retry_at = now + max(delayed.wait or timedelta(), min(max(now - since, FIRST_WAIT), LONGEST_WAIT))
    message = cut_clean(f"{delayed} Next attempt at {retry_at:%H:%M:%S} UTC.", 500)
    attempt.requeue(failing_since=since, retry_at=retry_at, message=message)


def _fail(attempt: Attempt, message: str) -> None:
    now = timezone.now()
    attempt.owned.update(state=State.FAILED, message=cut_clean(message, 500), touched_at=now, finished_at=now)
