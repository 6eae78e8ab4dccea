"""Small makers of real rows for the tests. Each gives a saved object; keyword arguments override its fields."""

from datetime import timedelta
from itertools import count
from typing import Any

from django.utils import timezone

from apps.accounts.models import Role, User
from apps.agents.models import Agent
from apps.environments.models import Adapter, Environment
from apps.gym.traces.events import (
    ModelCall,
    Prompt,
    SessionOpened,
    ToolResult,
    TraceUnion,
    Verification,
    encode_event,
    event_kind,
    event_tokens,
)
from apps.gym.traces.items import dump_json, input_items, message
from apps.policies.models import PolicyModel, Provider
from apps.rollouts.models import Breaker, Collection, Rollout, TraceEvent, Worker
from apps.tasks.models import Dataset, DatasetVersion, Task

_numbers = count(1)


def make_user(role: str = Role.ENGINEER, **fields: Any) -> User:
    return User.objects.create_user(username=fields.pop("username", f"{role}{next(_numbers)}"), role=role, **fields)


def make_environment(**fields: Any) -> Environment:
    number = next(_numbers)
    given = {"slug": f"environment-{number}", "name": f"Environment {number}", "adapter": Adapter.BUILTIN}
    return Environment.objects.create(**{**given, "builtin": "exact_match", **fields})


def make_row(question: str = "What is 2 + 2?", answer: str = "4", **fields: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": question}]},
        "expected_answer": answer,
        **fields,
    }


def make_dataset(rows: list[dict[str, Any]] | None = None, **fields: Any) -> Dataset:
    """A dataset with one ready version that holds `rows` (three by default)."""
    number = next(_numbers)
    rows = [make_row(f"What is {n} + 2?", str(n + 2)) for n in range(3)] if rows is None else rows
    environment = fields.pop("environment", None) or make_environment()
    dataset = Dataset.objects.create(
        **{"slug": f"dataset-{number}", "name": f"Dataset {number}", "environment": environment, **fields}
    )
    version = DatasetVersion.objects.create(
        dataset=dataset, number=1, state=DatasetVersion.State.READY, task_count=len(rows)
    )
    Task.objects.bulk_create(
        Task(
            dataset=dataset,
            version=version,
            index=index,
            prompt_excerpt="What is …" if input_items(row) else "",
            row_json=dump_json(row),
        )
        for index, row in enumerate(rows)
    )
    return dataset


def make_next_version(dataset: Dataset, rows: list[dict[str, Any]]) -> DatasetVersion:
    """The version after the dataset's latest one, ready, with `rows`."""
    number = dataset.versions.count() + 1
    version = DatasetVersion.objects.create(
        dataset=dataset, number=number, state=DatasetVersion.State.READY, task_count=len(rows)
    )
    Task.objects.bulk_create(
        Task(dataset=dataset, version=version, index=index, prompt_excerpt="What is …", row_json=dump_json(row))
        for index, row in enumerate(rows)
    )
    return version


def make_agent(**fields: Any) -> Agent:
    number = next(_numbers)
    return Agent.objects.create(**{"slug": f"agent-{number}", "name": f"Agent {number}", **fields})


def make_policy_model(**fields: Any) -> PolicyModel:
    number = next(_numbers)
    given = {"slug": f"model-{number}", "name": f"Model {number}", "provider": Provider.SCRIPTED}
    return PolicyModel.objects.create(**{**given, **fields})


def make_collection(**fields: Any) -> Collection:
    """A collection row without rollouts: add them with make_rollout."""
    dataset = fields.pop("dataset", None) or make_dataset()
    version = dataset.latest_version()
    assert version is not None
    given: dict[str, Any] = {"name": f"Collection {next(_numbers)}", "state": Collection.State.RUNNING}
    if fields.get("state") in {Collection.State.COMPLETED, Collection.State.CANCELLED}:
        given["finished_at"] = timezone.now()
    return Collection.objects.create(
        dataset=dataset,
        version=version,
        environment=dataset.environment,
        agent=fields.pop("agent", None) or make_agent(),
        policy_model=fields.pop("policy_model", None) or make_policy_model(),
        **{**given, **fields},
    )


def make_worker(**fields: Any) -> Worker:
    """One whose lease lives."""
    soon = timezone.now() + timedelta(seconds=30)
    return Worker.objects.create(**{"host": "h", "pid": 1, "seats": 8, "busy": 3, "lease_expires_at": soon, **fields})


def make_breaker(**fields: Any) -> Breaker:
    """An open one; name its `policy_model` or `environment`."""
    now = timezone.now()
    given = {"failures": 12, "message": "connection refused", "opened_at": now, "retry_at": now + timedelta(minutes=10)}
    return Breaker.objects.create(**{"state": Breaker.State.OPEN, **given, **fields})


def make_trace(answer: str = "4", reward: float | None = 1.0, *, tool_call: bool = True) -> list[TraceUnion]:
    """A plausible trace: prompt, one tool call with its result, an answer, a verification."""
    prompt = [message("user", "What is 2 + 2?")]
    call = {"type": "function_call", "call_id": "call_1", "name": "calculator", "arguments": '{"expression": "2+2"}'}
    spoken = {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": answer, "annotations": []}],
    }
    usage: Any = {"input_tokens": 20, "output_tokens": 5}
    events: list[TraceUnion] = [SessionOpened(environment="calculator"), Prompt(items=prompt)]
    if tool_call:
        events.append(ModelCall(seen=1, items=[call], model="scripted", finish_reason="tool_calls", usage=usage))
        events.append(ToolResult(call_id="call_1", name="calculator", output="4"))
    events.append(
        ModelCall(seen=3 if tool_call else 1, items=[spoken], model="scripted", finish_reason="stop", usage=usage)
    )
    events.append(
        Verification(
            reward=reward, components={"correct": reward or 0.0}, explanation="compared", stop_reason="answered"
        )
    )
    return events


def make_rollout(
    collection: Collection, *, task: Task | None = None, trace: list[TraceUnion] | None = None, **fields: Any
) -> Rollout:
    """A completed rollout with its trace stored; `reward=` and `status=` and the rest override."""
    task = task or collection.version.tasks.order_by("index").first()
    assert task is not None
    given: dict[str, Any] = {
        "status": Rollout.Status.COMPLETED,
        "repeat": Rollout.objects.filter(collection=collection, task=task).count(),
        "attempt": 1,
        "reward": 1.0,
        "stop_reason": "answered",
        "turns": 2,
        "tool_calls": 1,
        "started_at": timezone.now(),
        "finished_at": timezone.now(),
    }
    rollout = Rollout.objects.create(collection=collection, task=task, **{**given, **fields})
    events = make_trace(reward=rollout.reward) if trace is None else trace
    TraceEvent.objects.bulk_create(
        TraceEvent(
            rollout=rollout,
            attempt=rollout.attempt,
            seq=seq,
            kind=event_kind(event),
            payload=encode_event(event),
            tokens=event_tokens(event),
        )
        for seq, event in enumerate(events)
    )
    return rollout
