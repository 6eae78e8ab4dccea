"""Score the gold answers of a version: the first tasks right after loading, all of them in the background."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from copy import copy
from typing import Any

from django.db import transaction

from apps.accounts.audit_log import record
from apps.accounts.job_declarations import background_job
from apps.accounts.models import User
from apps.environments.models import Adapter, Environment
from apps.environments.resource_servers import connect_environment
from apps.gym import process_exit
from apps.gym.errors import GymError
from apps.gym.loop.trials.gold_attempts import GoldScore, score_by_environment, score_by_verifier
from apps.gym.redaction.shortening import cut_clean
from apps.gym.request_refusals import Refusal
from apps.gym.storable import clean_line
from apps.gym.traces.items import TaskRow
from apps.gym.verifiers.registry import asks_judge, read_verifier
from apps.gym.written.registry import find_kit
from apps.policies.policy_clients import open_outbound
from apps.tasks.models import DatasetVersion, Task
from apps.tasks.stored_images import full_row

logger = logging.getLogger(__name__)

SAMPLE = 20
SAMPLE_SECONDS = 3.0
CHUNK = 100
CHUNK_SECONDS = 20.0
AT_ONCE = 8
SHOWN = 20
"""Tasks in each list."""

COUNTS = ("full", "less", "unknown", "near", "texts")
"""Tasks by the reward of their expected answer; tasks whose verifier accepts a wrong copy; answers compared as text."""

LISTS = ("first", "copies", "unread")
"""Tasks with less than full reward, with an accepted wrong copy, and with an answer that is compared as text."""

Score = Callable[[TaskRow], Coroutine[Any, Any, GoldScore]]


def can_check(environment: Environment) -> bool:
    """Return True if gold answers can be scored here: by a configured verifier, or by a built-in environment.

    Servers of others score only attempts that they started.
    """
    if not environment.verifies:
        return False
    if environment.verifies_here:
        return not (environment.verifier and asks_judge(environment.verifier))
    return environment.adapter == Adapter.BUILTIN and find_kit(environment.builtin) is not None


def check_sample(version: DatasetVersion) -> None:
    """Score the first tasks of a version, for at most a few seconds. Does nothing if they are being scored."""
    _check_next(version, size=SAMPLE, seconds=SAMPLE_SECONDS, least=0)


class NotCheckable(Refusal, status=409, code="not-checkable"):
    """Raised if the gold answers of a version cannot be scored here."""


def check_again(*, version: DatasetVersion, user: User | None = None) -> DatasetVersion:
    """Score all gold answers of a version again, in the background. Raise NotCheckable."""
    environment = version.dataset.environment
    if not can_check(environment):
        raise NotCheckable(f"{environment} has no verifier that can score expected answers without an attempt.")
    with transaction.atomic():
        DatasetVersion.objects.filter(pk=version.pk).update(gold_next=0, gold_check=None)
        record(user=user, action="dataset_version.check_answers", target=version)
    version.refresh_from_db(fields=["gold_next", "gold_check"])
    return version


@background_job(thread="checks", waiting=lambda: DatasetVersion.objects.filter(gold_next__isnull=False, state="ready"))
def check_gold_answers() -> bool:
    """Background job: score the next gold answers of one version. Return True if there were any."""
    waiting = DatasetVersion.objects.filter(gold_next__isnull=False, state=DatasetVersion.State.READY)
    version = waiting.select_related("dataset__environment").order_by("-id").first()
    if version is None:
        return False
    _check_next(version, size=CHUNK, seconds=CHUNK_SECONDS, least=AT_ONCE)
    return True


def _check_next(version: DatasetVersion, *, size: int, seconds: float, least: int) -> None:
    """Score up to `size` tasks within `seconds`, but at least `least`, whose attempts have their own limit."""
    start = version.gold_next
    if start is None:
        return
    tasks = list(version.tasks.filter(index__gte=start).order_by("index")[:size])
    try:
        with asyncio.Runner() as runner:
            rows = [full_row(task) for task in tasks]
            scores = runner.run(_score(version.dataset.environment, rows, seconds=seconds, least=least))
    except process_exit.Leaving:
        raise
    except Exception as problem:
        told = str(problem) if isinstance(problem, GymError) else "an internal error; see the server log"
        if not isinstance(problem, GymError):
            # The version is loaded, and without an end this job would fail every second.
            logger.exception("the gold answers of %s could not be scored", version)
        _write(
            version,
            start,
            following=None,
            found={**(version.gold_check or {}), "problem": clean_line(cut_clean(told, 500), 500)},
        )
        return
    scored = tasks[: len(scores)]
    following = scored[-1].index + 1 if scored else start
    is_last = len(scored) == len(tasks) and len(tasks) < size
    _write(
        version, start, following=None if is_last else following, found=_add(version.gold_check or {}, scored, scores)
    )


def _write(version: DatasetVersion, start: int, *, following: int | None, found: dict[str, Any]) -> None:
    """Store the result, unless another process scored these tasks meanwhile."""
    own = DatasetVersion.objects.filter(pk=version.pk, gold_next=start)
    if own.update(gold_next=following, gold_check=found):
        version.gold_next, version.gold_check = following, found


async def _score(environment: Environment, rows: Sequence[TaskRow], *, seconds: float, least: int) -> list[GoldScore]:
    """Return the scores of the first rows, as many as the time allows."""
    until = time.monotonic() + seconds
    outbound = open_outbound()
    scores: list[GoldScore] = []
    try:
        score = _scorer(environment, outbound)
        for at in range(0, len(rows), AT_ONCE):
            process_exit.check()
            left = until - time.monotonic()
            if left <= 0 and at >= least:
                break
            async with asyncio.timeout(None if at < least else left):
                scores += await asyncio.gather(*map(score, rows[at : at + AT_ONCE]))
    except TimeoutError:
        logger.info("scoring gold answers of %s stopped after %g seconds", environment, seconds)
    finally:
        await outbound.close()
    return scores


def _scorer(environment: Environment, outbound: Any) -> Score:
    if environment.verifies_here:
        verifier = read_verifier(environment.verifier) if environment.verifier else None
        return lambda row: score_by_verifier(verifier, row)
    # Without a judge, because asking one costs tokens.
    own = copy(environment)
    own.judge_model = None
    server = connect_environment(own, outbound)
    kit = find_kit(environment.builtin)
    assert kit is not None
    return lambda row: score_by_environment(server, kit, row)


def _add(before: dict[str, Any], tasks: Sequence[Task], scores: Sequence[GoldScore]) -> dict[str, Any]:
    counts = {name: int(before.get(name, 0)) for name in COUNTS}
    lists: dict[str, list[dict[str, Any]]] = {name: list(before.get(name, [])) for name in LISTS}
    for task, score in zip(tasks, scores, strict=True):
        counts[score.outcome] += 1
        place = {"task": task.pk, "number": task.number}
        if score.outcome == "less":
            message = clean_line(cut_clean(score.message, 300), 300)
            lists["first"].append({**place, "reward": score.reward, "message": message})
        if score.copy is not None:
            counts["near"] += 1
            accepts = clean_line(score.copy.answer, 300)
            lists["copies"].append({**place, "change": score.copy.kind, "accepts": accepts})
        if score.text:
            counts["texts"] += 1
            lists["unread"].append({**place, "expected": clean_line(cut_clean(score.text, 300), 300)})
    return {**counts, **{name: places[:SHOWN] for name, places in lists.items()}}


def read_check(version: DatasetVersion) -> dict[str, Any]:
    """Return the counts, the first tasks of each of LISTS, and messages."""
    found = version.gold_check or {}
    return {
        **{name: int(found.get(name, 0)) for name in COUNTS},
        "complete": version.gold_next is None,
        "checkable": can_check(version.dataset.environment),
        **{name: found.get(name, []) for name in LISTS},
        "message": describe_check(version),
        "warnings": list(_warn(found)),
    }


def _warn(found: dict[str, Any]) -> Iterator[str]:
    if near := found.get("near"):
        answers = "1 expected answer" if near == 1 else f"{near:,} expected answers"
        yield f"The verifier also accepts a wrong copy of {answers}, so it may reward wrong answers."
    if texts := found.get("texts"):
        answers = "1 expected answer is" if texts == 1 else f"{texts:,} expected answers are"
        yield f"{answers} no mathematics that the verifier can read, so only the same text gets the reward."


def describe_check(version: DatasetVersion) -> str:
    """Return the result in one or two sentences; empty if gold answers are not scored."""
    found = version.gold_check
    if not found:
        return ""
    if found.get("problem"):
        return f"Expected answers could not be scored: {found['problem']}"
    checked = found["full"] + found["less"]
    if not checked:
        return ""
    scope = f"{checked:,}" if version.gold_next is None else f"the first {checked:,}"
    if not found["less"]:
        return _describe_full(checked, found.get("unknown", 0), is_complete=version.gold_next is None)
    first = found["first"][0]
    why = f" Task {first['number']:,}: {first['message'].rstrip('.')}." if first["message"] else ""
    return (
        f"{found['less']:,} of {scope} expected answers get less than full reward from the verifier. "
        f"The mapping or the verifier may be wrong.{why}"
    )


def _describe_full(checked: int, unknown: int, *, is_complete: bool) -> str:
    if unknown:
        tasks = f"{'' if is_complete else 'the first '}{checked + unknown:,}"
        return f"The expected answers of {checked:,} of {tasks} tasks were scored; all get full reward."
    if checked == 1:
        return "The expected answer gets full reward."
    return f"{'All' if is_complete else 'The first'} {checked:,} expected answers get full reward."
