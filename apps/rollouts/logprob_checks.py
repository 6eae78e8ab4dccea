"""Check captured log probabilities: score the captured ids again, and store how far both differ on the policy model.

The server of the model scores them with vLLM's `prompt_logprobs`, or the caller sends the scores of a trainer's model.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from asgiref.sync import async_to_sync
from django.core.exceptions import ValidationError
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.outages import release_connection
from apps.gym.calls.refusals import explain_refusal
from apps.gym.errors import GymError
from apps.gym.metrics.logprob_differences import LogprobComparison, compare_logprobs
from apps.gym.request_refusals import Refusal
from apps.gym.sent_sampling import find_altered
from apps.gym.storable import clean_line
from apps.gym.traces.graph_segments import LeafSegment, join_graph
from apps.gym.traces.segments import Sampled
from apps.gym.traces.tokens import TokensUnreadable
from apps.policies.models import LogprobMode, PolicyModel
from apps.policies.policy_clients import open_outbound, open_scorer
from apps.rollouts.models import Collection, Rollout

MAX_ROLLOUTS = 256
CHECK_SECONDS = 60.0
"""Time limit for all sequences, because a user is waiting. The figures cover the sequences scored until then."""
_CONCURRENCY = 8
_MAX_MESSAGE = 500


class NoComparableTokens(Refusal, status=409, code="no-comparable-tokens"):
    """Raised if no rollout of the model has comparable tokens."""


class CheckedSequence(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of a sequence by another model: a logprob for each of its ids, 0 for the first."""

    rollout: int
    segment: int
    logprobs: list[float]


class LogprobCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A stored check. `left_out` counts tokens and sequences that cannot be compared, by reason.

    `compared_with` is `server`, or what the caller compared with, for example a folder and a data type. `problem` is
    the first error of the server; empty if it scored all sequences.
    """

    at: str
    compared_with: str
    version: str
    rollouts: int
    figures: LogprobComparison
    left_out: dict[str, int] = {}
    problem: str = ""


class _Sequence(NamedTuple):
    rollout: int
    segment: int
    ids: list[int]
    captured: list[float]
    places: list[int]  # of the tokens to compare


def check_logprobs(
    *,
    policy_model: PolicyModel,
    user: object,
    collection: Collection | None = None,
    rollouts: int = 32,
    scores: Sequence[CheckedSequence] = (),
    compared_with: str = "",
) -> LogprobCheck:
    """Compare the newest rollouts with captured tokens, and store the result.

    Without `scores`, the server of the model scores the sequences. With `scores`, only these sequences are compared.
    Raise NoComparableTokens, or ValidationError for scores of another length.
    """
    left_out: Counter[str] = Counter()
    found = list(_read_sequences(policy_model, collection, rollouts, {one.rollout for one in scores}, left_out))
    if not found:
        raise NoComparableTokens(
            "No rollout of this model and its current version has captured tokens that can be compared. Collect some "
            "with token capture, at temperature 1 or with raw logprobs."
        )
    if scores:
        scored, problem = _match(found, scores), ""
    else:
        release_connection()
        scored, problem = async_to_sync(_score)(policy_model, found)
    missing = len(found) - len(scored)
    if missing:
        left_out["not_scored"] = missing
    pairs = (
        ([one.captured[place] for place in one.places], [logprobs[place] for place in one.places])
        for one, logprobs in scored
    )
    check = LogprobCheck(
        at=timezone.now().isoformat(timespec="seconds"),
        compared_with=compared_with or "server",
        version=policy_model.version,
        rollouts=len({one.rollout for one, _ in scored}),
        figures=compare_logprobs(pairs),
        left_out=dict(left_out),
        problem=clean_line(problem, _MAX_MESSAGE),
    )
    policy_model.logprob_check = msgspec.to_builtins(check)
    policy_model.save(update_fields=["logprob_check"])
    record(user=user, action="policy_model.check_logprobs", target=policy_model.slug, sequences=len(scored))
    return check


def _read_sequences(
    policy_model: PolicyModel, collection: Collection | None, most: int, only: set[int], left_out: Counter[str]
) -> Iterator[_Sequence]:
    rows = Rollout.objects.filter(
        collection__policy_model=policy_model, model_version=policy_model.version, sampled_tokens__gt=0
    )
    if collection is not None:
        rows = rows.filter(collection=collection)
    if only:
        rows = rows.filter(pk__in=only)
    for rollout in rows.order_by("-pk")[:most]:
        try:
            segments = join_graph(rollout.graph(tokens=True))
        except TokensUnreadable:
            left_out["tokens_unreadable"] += 1
            continue
        for number, one in enumerate(segments):
            places = list(_comparable(policy_model, one, left_out))
            if places:
                ids, logprobs = one.segment.input_ids.tolist(), one.segment.logprobs.tolist()
                yield _Sequence(rollout.pk, number, ids, logprobs, places)


def _comparable(policy_model: PolicyModel, one: LeafSegment, left_out: Counter[str]) -> Iterator[int]:
    """Yield the places of the sampled tokens whose logprobs a plain forward pass can give."""
    for sampled in one.sampled:
        if reason := _find_reason(policy_model, sampled):
            left_out[reason] += sampled.end - sampled.start
        else:
            yield from range(sampled.start, sampled.end)


def _find_reason(policy_model: PolicyModel, sampled: Sampled) -> str:
    if sampled.grammar:
        return "grammar"
    if sampled.version != policy_model.version:
        return "other_version"
    if policy_model.known_logprob_mode == LogprobMode.PROCESSED and sampled.temperature not in (None, 1.0):
        return "processed_temperature"
    if policy_model.known_logprob_mode == LogprobMode.PROCESSED and find_altered(sampled.sampling):
        return "processed_sampling"
    return ""


def _match(found: list[_Sequence], scores: Sequence[CheckedSequence]) -> list[tuple[_Sequence, list[float]]]:
    given = {(one.rollout, one.segment): one.logprobs for one in scores}
    matched = []
    for one in found:
        logprobs = given.get((one.rollout, one.segment))
        if logprobs is None:
            continue
        if len(logprobs) != len(one.ids) or not all(map(math.isfinite, logprobs)):
            wanted = f"Give a finite logprob for each of the {len(one.ids)} ids of rollout {one.rollout}."
            raise ValidationError({"scores": [wanted]})
        matched.append((one, logprobs))
    if not matched:
        raise ValidationError({"scores": ["No score belongs to a sequence of this model and its current version."]})
    return matched


async def _score(policy_model: PolicyModel, found: list[_Sequence]) -> tuple[list[tuple[_Sequence, list[float]]], str]:
    """Return the sequences that the server has scored, and its first error."""
    outbound = open_outbound()
    scored: list[tuple[_Sequence, list[float]]] = []
    problems: list[str] = []
    free = asyncio.Semaphore(_CONCURRENCY)
    try:
        sender = open_scorer(policy_model, outbound)

        async def score(one: _Sequence) -> None:
            body = {"model": policy_model.model_name, "prompt": one.ids, "max_tokens": 1, "temperature": 0.0}
            async with free:
                try:
                    reply = await sender.send(body | {"prompt_logprobs": 0}, "", 1)
                    if reply.status != 200:
                        raise ValueError(f"{reply.status}: {explain_refusal(reply.body)[0]}")
                    scored.append((one, _read_scores(reply.body, one.ids)))
                except (GymError, OSError, ValueError, msgspec.DecodeError) as problem:
                    problems.append(str(problem))

        asking = [asyncio.create_task(score(one)) for one in found]
        _, late = await asyncio.wait(asking, timeout=CHECK_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        if late:
            problems.append(f"{len(late)} sequences were not scored within {CHECK_SECONDS:g} s.")
    except GymError as problem:
        problems.append(str(problem))
    finally:
        await outbound.close()
    return scored, next(iter(problems), "")


class _Logprob(msgspec.Struct):
    logprob: float


class _Choice(msgspec.Struct):
    prompt_logprobs: list[dict[str, _Logprob] | None] | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


_decoder = msgspec.json.Decoder(_Completion)


def _read_scores(body: bytes, ids: list[int]) -> list[float]:
    """Return the logprob of each id in vLLM's reply, 0 for the first. Raise ValueError or DecodeError."""
    choices = _decoder.decode(body).choices
    scored: Any = choices[0].prompt_logprobs if choices else None
    if scored is None or len(scored) != len(ids):
        raise ValueError("The server does not return prompt_logprobs, which vLLM has.")
    try:
        return [0.0] + [scored[place][str(own)].logprob for place, own in enumerate(ids) if place]
    except (KeyError, TypeError):
        raise ValueError("The server's prompt_logprobs lack ids of the prompt.") from None
