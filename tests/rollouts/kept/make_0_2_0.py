"""Write gymweb-0.2.0.sqlite3.gz: a database of GymWeb 0.2.0 with rollouts that later rules derive otherwise.

    cd CHECKOUT_OF_0_2_0 && GYMWEB_VAR=EMPTY_FOLDER python .../tests/rollouts/kept/make_0_2_0.py OUTPUT

The collections really ran with GymWeb 0.2.0 (commit 27155339), against a model and a resource server on a socket. The
server replies as NeMo Gym 0.7 does: masked replies have reward 0. It marks each reply with the kind that the rollout
has by later rules, as `expected`: `masked`, or `right`.
"""

# ruff: noqa: E402

import asyncio
import gzip
import os
import sqlite3
import sys
import threading
from collections import Counter
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path.cwd()))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gymweb.settings")
os.environ.setdefault("GYMWEB_OUTBOUND_ALLOW", "127.0.0.1")

import django
import orjson
from aiohttp import web
from asgiref.sync import async_to_sync

django.setup()

from django.conf import settings
from django.core.management import call_command
from django.utils.timezone import now

from apps.accounts.models import AuditEntry
from apps.environments.models import Adapter, Environment
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.exports.models import Export
from apps.gym.pairs.pair_rule import Rule
from apps.gym.traces.events import Verification
from apps.gym.traces.items import message
from apps.pairs.models import PreferencePair
from apps.pairs.pair_decisions import decide_pairs
from apps.pairs.pair_sets import PairOrder, order_pairs
from apps.reviews.reviews.reward_overrides import override_reward
from apps.rollouts.imports.import_spec import ImportOrder
from apps.rollouts.imports.rollout_import import import_rollouts
from apps.rollouts.imports.task_matching import File
from apps.rollouts.models import Collection, Rollout, Worker
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.steering.local_worker import finish_collection
from scripts.mock_replies import chat_reply
from tests.factories import (
    make_agent,
    make_collection,
    make_dataset,
    make_environment,
    make_policy_model,
    make_rollout,
    make_row,
    make_user,
)
from tests.gym.captured_calls import SYSTEM, Recorder, said
from tests.rollouts.test_captured_traces import TASK
from tests.rollouts.test_captured_traces import captured as captured_trace

OOM = {"reward": 0.0, "mask_sample": True, "failure_kind": "provider_oom_killed", "expected": "masked"}
IN_CONFIG = {"reward": 0.0, "instance_config": {"mask_sample": True}, "expected": "masked"}
NOT_MASKED = {"reward": 0.0, "mask_sample": False, "failure_kind": "agent_timeout", "expected": "right"}
SOLVED, FAILED = {"reward": 1.0, "expected": "right"}, {"reward": 0.0, "expected": "right"}
VERDICTS = {
    "solved and failed": [SOLVED, FAILED],
    "solved and out of memory": [SOLVED, OOM],
    "solved and masked in its configuration": [SOLVED, IN_CONFIG],
    "failed without a mask": [NOT_MASKED, FAILED],
}
"""Replies of `/verify` by question, in the order of the requests."""
TOKENS = 4


class Server:
    """A model at /v1 that numbers its replies, and a resource server."""

    def __init__(self) -> None:
        self.replies = 0
        self.verified: Counter[str] = Counter()
        self.port = 0
        ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True).start()
        ready.wait()

    async def _serve(self, ready: threading.Event) -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/seed_session", self._seed)
        app.router.add_post("/verify", self._verify)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        ready.set()
        await asyncio.Event().wait()

    async def _chat(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.replies += 1
        outputs = sum(one["role"] == "tool" for one in asked["messages"])
        options = SimpleNamespace(
            tool_calls=1 if asked.get("tools") else 0,
            tool_name="calculator",
            tool_args='{"expression": "6 * 7"}',
            final=f"Attempt {self.replies}. \\boxed{{42}}",
            tokens=TOKENS,
        )
        reply = chat_reply(outputs, options, with_tokens=bool(asked.get("return_token_ids")))
        return web.Response(body=orjson.dumps(reply), content_type="application/json")

    async def _seed(self, request: web.Request) -> web.Response:
        return web.json_response({})

    async def _verify(self, request: web.Request) -> web.Response:
        body = await request.json()
        question = body["responses_create_params"]["input"][0]["content"]
        verdict = VERDICTS.get(question, [SOLVED, SOLVED])[self.verified[question] % 2]
        self.verified[question] += 1
        return web.json_response({**body, **verdict})


def run(name: str, **plan: Any) -> Collection:
    planned = plan_collection(Plan(agent=make_agent(), **plan))
    Collection.objects.filter(pk=planned.pk).update(name=name)
    planned.refresh_from_db()
    return async_to_sync(finish_collection)(planned, progress=lambda _: None)


def export(name: str, collection: Collection, **fields: Any) -> None:
    order = ExportOrder(format=name, collection=collection, **fields)
    assert write_export(export=queue_export(order)).state == "ready"


def row(question: str, **fields: Any) -> dict[str, Any]:
    item = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed"}
    text = {"type": "output_text", "text": f"An answer to {question}", "annotations": []}
    response = {"id": "resp_1", "model": "stored", "object": "response", "output": [{**item, "content": [text]}]}
    prompt = {"input": [{"role": "user", "content": question}]}
    return {"responses_create_params": prompt, "response": response, **fields}


def main(output: Path) -> None:
    call_command("migrate", verbosity=0)
    settings.WORKER_BACKGROUND_JOBS = []
    server, engineer = Server(), make_user()
    engineer.set_unusable_password()
    engineer.save()
    url = f"http://127.0.0.1:{server.port}"
    fields = {"provider": "compatible", "base_url": f"{url}/v1", "model_name": "mock"}
    plain, captured = make_policy_model(**fields), make_policy_model(**fields, capture_tokens=True)
    remote = make_environment(adapter=Adapter.HTTP, builtin="", base_url=url)

    masked = run(
        "masked",
        dataset=make_dataset([make_row(question) for question in VERDICTS], environment=remote),
        policy_model=plain,
        repeats=2,
        concurrency=1,
    )
    pair_set = order_pairs(PairOrder(collection=masked, name="pairs", rule=Rule(mode="all")), user=engineer)
    export("nemo_gym_rollouts", masked)
    export("openai_sft", masked)
    export("openai_dpo", masked, pair_set=pair_set)
    decide_pairs(pairs=list(PreferencePair.objects.all()), status="accepted", user=engineer)
    for rollout in masked.rollouts.filter(reward=0.0):
        override_reward(rollout=rollout, reward=0.5, reason="Half right", author=engineer)

    calculator = Environment.objects.get(slug="calculator")
    run("forced", dataset=make_dataset([make_row("6 * 7?", "42")], environment=calculator), policy_model=captured)
    free = run("free", dataset=make_dataset([make_row("6 * 7?", "42")], environment=remote), policy_model=captured)
    export("nemo_gym_rollouts", free)
    run("plain", dataset=make_dataset([make_row("6 * 7?", "42")], environment=remote), policy_model=plain)

    dataset = make_dataset([make_row()], environment=remote)
    agents = make_collection(name="captured", dataset=dataset, total=2, completed=2)
    columns = {"turns": 4, "tool_calls": 0, "answer": "4", "reward": 1.0}
    make_rollout(agents, trace=captured_trace(), **columns)
    threads = Recorder()
    threads.call([SYSTEM, TASK], [said("Three.")], hint="main")
    threads.call([SYSTEM, message("user", "Count the folders.")], [said("4")], hint="main")
    verified = Verification(reward=1.0, stop_reason="answered", details={"expected": "right"})
    make_rollout(agents, trace=[*threads.events, verified], **{**columns, "turns": 2})
    Collection.objects.filter(pk=agents.pk).update(rewarded=2, reward_sum=2.0, state="completed", finished_at=now())

    rows = [row(question, **reply) for question, replies in VERDICTS.items() for reply in replies[1:]]
    lines = b"".join(orjson.dumps(one) + b"\n" for one in rows)
    order = ImportOrder(dataset=make_dataset(rows=[], environment=remote), agent=make_agent(), name="imported")
    imported = import_rollouts(order, files=[File("rollouts.jsonl", BytesIO(lines))]).collection
    export("nemo_gym_rollouts", imported)

    Worker.objects.all().delete()
    # They name the command with its path.
    AuditEntry.objects.all().delete()
    for one in Export.objects.all():
        Export.objects.filter(pk=one.pk).update(path=f"exports/{one.pk}")
    print(Rollout.objects.count(), "rollouts", PreferencePair.objects.count(), "pairs")
    write(output)


def write(output: Path) -> None:
    stored = sqlite3.connect(settings.DATABASES["default"]["NAME"])
    compact = output.with_suffix(".tmp")
    compact.unlink(missing_ok=True)
    stored.execute("VACUUM INTO ?", [str(compact)])
    output.write_bytes(gzip.compress(compact.read_bytes(), 9, mtime=0))
    compact.unlink()
    print(output.stat().st_size, "bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
