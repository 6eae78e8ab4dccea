"""Rows for generated requests to hit: every noun, in several states. Run as a program, it fills the database that the
environment names, and prints a key and the names of what there is, as one JSON object."""

import io
import json
from typing import Any

import django

FLAGGED = {"redactions": {"bearer": 1}, "flagged": True}
FAILED = {"status": "failed", "reward": None, "stop_reason": "", "error_kind": "policy_error"}
QUEUED = {"status": "queued", "reward": None, "stop_reason": "", "attempt": 0, "started_at": None, "finished_at": None}


def fill() -> dict[str, Any]:
    from apps.accounts.api_keys import create_api_key
    from apps.accounts.table_preferences import save_view
    from apps.exports.export_jobs import write_export
    from apps.exports.export_orders import ExportOrder, queue_export
    from apps.pairs.models import PairSet
    from apps.pairs.pair_sets import PairOrder, build_pairs, queue_pair_set
    from apps.rollouts.models import Collection
    from apps.rollouts.reverification.reverification_jobs import queue_reverification
    from apps.rollouts.reverification.reverification_spec import ReverificationOrder
    from apps.tasks.received_files import create_upload, store_file
    from apps.tasks.upload_choices import Choices
    from apps.tasks.upload_jobs import upload_file
    from apps.tracking.run_links import stop_run
    from tests.api.rows import MAKERS, make_pair, make_scan, make_tracked_run
    from tests.factories import (
        make_agent,
        make_collection,
        make_dataset,
        make_policy_model,
        make_rollout,
        make_row,
        make_user,
    )
    from tests.reviews.queues import claim, judge, make_queue, make_rubric
    from tests.rollouts.finished import finish_reverification
    from tests.rollouts.stored import stored_row

    user = make_user("admin")
    made: dict[str, list[Any]] = {noun: [maker() for _ in range(6)] for noun, maker in MAKERS.items()}

    lines = b"\n".join(json.dumps(make_row(f"What is {n} + 1?", str(n + 1))).encode() for n in range(6))
    for dataset in made["datasets"]:
        for body in (lines, lines + b"\nnonsense"):
            made["uploads"].append(upload_file(dataset=dataset, stream=io.BytesIO(body), filename="rows.jsonl"))
        choices = Choices(check_only=True)
        made["uploads"].append(
            store_file(dataset=dataset, stream=io.BytesIO(lines), filename="rows.jsonl", choices=choices, draft=True)
        )
        made["uploads"].append(create_upload(dataset=dataset, filename="rows.jsonl"))

    state = Collection.State
    for given in (state.COMPLETED, state.COMPLETED, state.CANCELLED, state.PAUSED, state.RUNNING, state.RUNNING):
        waiting = 0 if given in {state.COMPLETED, state.CANCELLED} else 2
        reason = {"pause_reason": Collection.PauseReason.ASKED} if given == state.PAUSED else {}
        counts = {"total": 4 + waiting, "completed": 3, "failed": 1, "rewarded": 3, "reward_sum": 2.0}
        collection = make_collection(state=given, dataset=made["datasets"][0], **counts, **reason)
        made["collections"].append(collection)
        for fields in ({}, {"reward": 0.0}, FLAGGED, FAILED, *[QUEUED] * waiting):
            made["rollouts"].append(make_rollout(collection, **fields))
        if given != state.COMPLETED:
            continue
        pair_set: PairSet = build_pairs(PairOrder(collection=collection, name="Changing"))
        made["pair-sets"].append(pair_set)
        made["pairs"] += pair_set.pairs.all()
        for form in ("trl_sft", "nemo_gym_rollouts", "otel_genai"):
            export = queue_export(ExportOrder(format=form, collection=collection, filters={"include_flagged": True}))
            made["exports"].append(write_export(export=export))
        queued = queue_reverification(ReverificationOrder(collection=collection))
        made["reverifications"].append(finish_reverification(reverification=queued))

    def uploads(state: str) -> list[Any]:
        return [upload for upload in made["uploads"] if upload.state == state]

    def collections(**fields: Any) -> list[Any]:
        return [make_collection(**fields) for _ in range(8)]

    def ended() -> list[Any]:
        finished = [make_collection(state=state.COMPLETED, total=1, completed=1) for _ in range(6)]
        return [make_rollout(one).collection for one in finished]

    def queues() -> list[Any]:
        return [make_queue(pairs=1) for _ in range(5)]

    def views(name: str) -> list[Any]:
        return [save_view(user=user, table="rollouts", name=f"{name} {number}") for number in range(6)]

    full = [one for one in made["collections"] if one.completed]
    paused = {"state": state.PAUSED, "pause_reason": Collection.PauseReason.ASKED}
    # Operations that use up their rows, or that most rows have nothing for, have rows of their own.
    lands = {
        "DELETE collections/{id}/": collections(state=state.CANCELLED),
        "DELETE datasets/{slug}/": [make_dataset() for _ in range(16)],
        "DELETE datasets/{slug}/versions/{number}/": [make_dataset() for _ in range(16)],
        "DELETE rollouts/{id}/": [collection.rollouts.get() for collection in ended()],
        "DELETE saved-views/{id}/": views("Going"),
        "DELETE uploads/{id}/": [
            create_upload(dataset=dataset, filename="rows.jsonl") for dataset in made["datasets"] for _ in range(3)
        ],
        "GET collections/{id}/contrast/": full,
        "GET pair-sets/{id}/changes/": [build_pairs(PairOrder(collection=full[0], name="Changing"))],
        "GET uploads/{id}/rejected/": [upload for upload in made["uploads"] if upload.rejected],
        "PATCH collections/{id}/": collections(state=state.RUNNING),
        "PATCH saved-views/{id}/": views("Staying"),
        "POST collections/{id}/cancel/": collections(state=state.RUNNING),
        "POST collections/{id}/delete_rollouts/": ended(),
        "POST collections/{id}/pause/": collections(state=state.RUNNING),
        "POST collections/{id}/resume/": collections(**paused),
        "POST pair-sets/{id}/ask/": [make_pair().pair_set for _ in range(2)],
        "POST pair-sets/{id}/cancel/": [queue_pair_set(PairOrder(collection=full[1])) for _ in range(6)],
        "POST queue-items/{id}/adjudicate/": [judge(queue, user).item for queue in queues()],
        "POST queues/{id}/undo/": [judge(queue, user).queue for queue in queues()],
        "POST reviews/{id}/renew/": [claim(queue, user) for queue in queues()],
        "POST reviews/{id}/skip/": [claim(queue, user) for queue in queues()],
        "POST reviews/{id}/submit/": [claim(queue, user) for queue in queues()],
        "POST scans/{id}/cancel/": [make_scan() for _ in range(8)],
        "POST scans/{id}/start/": [make_scan(state="draft", answered=0) for _ in range(8)],
        "POST tracked-runs/{id}/resend/": [stop_run(run=make_tracked_run()) for _ in range(4)],
        "POST tracked-runs/{id}/stop/": [make_tracked_run() for _ in range(8)],
        "POST uploads/{id}/check/": uploads("draft")[::2],
        "POST uploads/{id}/commit/": uploads("draft")[1::2],
        "POST uploads/{id}/finish/": uploads("receiving")[::2],
        "PUT uploads/{id}/parts/": uploads("receiving")[1::2],
    }
    made |= lands
    known = {noun: [getattr(row, "slug", row.pk) for row in rows] for noun, rows in made.items()}
    _, key = create_api_key(user=user, name="fuzz", scopes=["admin"])

    # What a schema cannot say: which values go together.
    first, rubric = full[0], make_rubric()
    scores = {"right": True, "clear": 3, "why": "because"}
    known["names GET exports/{id}/files/{name}/"] = [
        {"id": export.pk, "name": file["name"]}
        for export in made["exports"]
        for file in export.manifest.get("files", [])
    ]
    known["names DELETE datasets/{slug}/versions/{number}/"] = [
        {"slug": dataset.slug, "number": 1} for dataset in lands["DELETE datasets/{slug}/versions/{number}/"]
    ]
    known["names GET datasets/{slug}/versions/{number}/changes/"] = [{"slug": made["datasets"][0].slug, "number": 2}]
    rows, spans = (next(one.pk for one in made["exports"] if one.format == form) for form in ("trl_sft", "otel_genai"))
    bodies: dict[str, Any] = {
        "POST collections/import/": json.dumps(stored_row()) + "\n",
        "POST collections/{id}/delete_rollouts/": {"status": "completed"},
        "POST hub-pushes/": {"export": rows, "repository": "team/rollouts", "token": "hf_fuzz"},
        "POST queue-items/{id}/adjudicate/": {"token": "adjudicated", "choice": "b"},
        "POST queues/": {"name": "Queue", "kind": "rubric", "rubric": rubric.slug, "collection": first.pk},
        "POST reviews/": {"rollout": first.rollouts.first().pk, "rubric": rubric.slug, "scores": scores},
        "POST reviews/{id}/submit/": {"token": "submitted", "choice": "a"},
        "POST suites/{slug}/collect/": {"agent": make_agent().slug, "policy_model": make_policy_model().slug},
        "POST trace-sends/": {"export": spans, "destination": made["trace-destinations"][0].pk},
    }
    known["query POST collections/import/"] = [{"dataset": make_dataset(rows=[]).slug, "agent": make_agent().slug}]
    return {"key": key, "known": known | {f"body {name}": [body] for name, body in bodies.items()}}


if __name__ == "__main__":
    django.setup()
    print(json.dumps(fill()))
