"""One of everything for the tests of every page, beside the demo's own rows: prints the pages' addresses as JSON."""

import io
import json
from typing import Any

import django

django.setup()

from django.core.management import call_command  # noqa: E402
from django.urls import reverse  # noqa: E402

from apps.accounts.api_keys import create_api_key  # noqa: E402
from apps.accounts.invitations import create_invitation  # noqa: E402
from apps.accounts.models import Role, User  # noqa: E402
from apps.accounts.second_factor.authenticator_codes import start_setup  # noqa: E402
from apps.alerts.subscription_changes import send_test  # noqa: E402
from apps.exports.models import Export  # noqa: E402
from apps.pairs.models import PairSet, PreferencePair  # noqa: E402
from apps.policies.models import RedactionPattern  # noqa: E402
from apps.reviews.models import Comment, Queue  # noqa: E402
from apps.reviews.reviews.flags import raise_flag  # noqa: E402
from apps.rollouts.models import (  # noqa: E402
    Collection,
    CollectionDeletion,
    Recheck,
    Reverification,
    ReverifiedReward,
    Rollout,
    RolloutChange,
)
from apps.tasks.models import ColumnMapping, Dataset, Deletion, Suite, Upload  # noqa: E402
from apps.tasks.received_files import store_file  # noqa: E402
from apps.tasks.suite_changes import save_suite  # noqa: E402
from apps.tasks.upload_jobs import upload_file  # noqa: E402
from tests.api.rows import make_push, make_scan, make_subscription, make_trace_destination, make_tracked_run  # noqa: E402
from tests.browser.conftest import PASSWORD  # noqa: E402
from tests.factories import make_collection, make_environment, make_policy_model, make_rollout, make_user  # noqa: E402
from tests.gym.traces import weather_trace, with_tokens  # noqa: E402
from tests.reviews.queues import claim, judge, make_queue, make_rubric  # noqa: E402

MAPPING = {"prompt": {"column": "question"}, "expected_answer": {"column": "answer"}}
BAD = b'{"question": "What is 1 + 1?", "answer": "2"}\n{"question": 7}\nnot JSON\n'


def first(model: Any, **fields: Any) -> Any:
    return model.objects.filter(**fields).order_by("pk").first()


def main() -> None:
    call_command("demo", "--no-serve", stdout=io.StringIO(), stderr=io.StringIO())
    admin = make_user(Role.ADMIN, username="ada")
    admin.set_password(PASSWORD)
    admin.save()
    create_api_key(user=admin, name="training cluster", scopes=["rollouts:run"])
    collection = first(Collection, name__startswith="Demo")
    dataset = first(Dataset, slug="demo-arithmetic")
    rollout = first(Rollout, collection=collection, status="completed")
    later = make_collection(
        dataset=dataset,
        agent=collection.agent,
        policy_model=collection.policy_model,
        name="Demo: the same later",
        state="completed",
        total=4,
        completed=3,
        failed=1,
        rewarded=3,
        reward_sum=2.0,
        snapshot=collection.snapshot,
    )
    tasks = list(dataset.tasks.order_by("index")[:2])
    for number, task in enumerate(tasks):
        make_rollout(later, task=task, reward=float(number), output_tokens=40, components={"correct": float(number)})
    pieces = weather_trace()
    sampled = make_rollout(
        later, task=tasks[1], repeat=1, trace=with_tokens(pieces, ([1, 2], [3, 4]), ([1, 2, 3, 4], [5]))
    )
    make_rollout(later, task=tasks[0], repeat=1, reward=None, status="failed", error_kind="policy_error",
                           error_message="the model's server refused the connection", stop_reason="",
                           trace=[])  # fmt: skip
    Comment.objects.create(rollout=rollout, author=admin, text="It guessed, and was right.", seq=2)
    make_policy_model(
        slug="vllm", name="A model on a private network", provider="vllm", base_url="http://10.0.0.5/v1", model_name="m"
    )
    served = make_environment(slug="served", name="Served tools", adapter="http", base_url="http://10.0.0.6:9000")
    checked = upload_file(dataset=dataset, stream=io.BytesIO(BAD), filename="with-mistakes.jsonl", user=admin)
    draft = store_file(dataset=dataset, stream=io.BytesIO(BAD), filename="to-map.jsonl", draft=True, user=admin)
    ColumnMapping.objects.create(slug="question-answer", name="Question and answer", mapping=MAPPING, created_by=admin)
    deletion = Deletion.objects.create(name="Old sums", whole=True, state="done", total=40, deleted=40)
    gone = CollectionDeletion.objects.create(name="#3 First try", state="done", total=320, deleted=320)
    recheck = Recheck.objects.create(
        collection=collection, rules=1, state="ready", total=8, checked=8, outcomes=1, created_by=admin
    )
    RolloutChange.objects.create(
        recheck=recheck,
        rollout=rollout,
        attempt=1,
        kind="outcome",
        old={"reward": rollout.reward, "masked": ""},
        new={"reward": None, "masked": "provider_oom_killed"},
    )
    again = Reverification.objects.create(
        collection=collection, state="ready", total=8, verified=8, changed=1, created_by=admin
    )
    ReverifiedReward.objects.create(
        reverification=again,
        rollout=rollout,
        attempt=1,
        old_status="completed",
        old_reward=rollout.reward,
        new_reward=0.5,
        difference=0.5 - (rollout.reward or 0),
        changed=True,
    )
    RedactionPattern.objects.get_or_create(kind="prefix", text="corp.", least=20)
    subscription = make_subscription()
    send_test(subscription=subscription)
    pair_set = first(PairSet, collection=collection)
    export = first(Export, collection=collection, state="ready")
    suite = Suite(slug="demo-suite", name="Demo suite", datasets=[dataset, *Dataset.objects.exclude(pk=dataset.pk)[:2]])
    save_suite(suite=suite, user=admin)
    run = make_tracked_run(collection=collection)
    make_push(export=export, is_private=True)
    of = {
        "person_edit": [User.objects.get(username="erika").pk],
        "invitation_accept": [create_invitation(role="annotator", email="ida@example.org", by=admin)[1]],
        **{name: [dataset.slug] for name in PAGES_OF_DATASETS},
        **{name: [suite.slug] for name in ("suite_detail", "suite_edit", "suite_collect")},
        "deletion_detail": [deletion.pk],
        "upload_detail": [checked.pk],
        "upload_map": [draft.pk],
        "task_detail": [tasks[0].pk],
        **{name: [subscription.pk] for name in ("alert_detail", "alert_edit")},
        "trace_edit": [make_trace_destination().pk],
        "environment_detail": ["calculator"],
        "environment_edit": [served.slug],
        "environment_try": ["calculator"],
        "environment_cases": ["calculator"],
        "verifier_detail": ["numeric"],
        **{name: [collection.policy_model.slug] for name in ("model_detail", "model_try")},
        "model_edit": ["vllm"],
        "agent_detail": ["default"],
        "agent_edit": ["default"],
        **{name: [collection.pk] for name in PAGES_OF_COLLECTIONS},
        "collection_deletion_detail": [gone.pk],
        **{name: [rollout.pk] for name in PAGES_OF_ROLLOUTS},
        "rollout_step": [rollout.pk, 2],
        "rollout_tokens": [sampled.pk],
        "recheck_detail": [recheck.pk],
        "reverification_detail": [again.pk],
        "scan_detail": [make_scan().pk],
        "pair_set_detail": [pair_set.pk],
        "pair_detail": [first(PreferencePair, pair_set=pair_set).pk],
        **{name: [export.pk] for name in ("export_detail", "export_push")},
        "tracker_edit": [run.tracker_id],
    }  # fmt: skip
    queues = make_queues(rollout)
    of |= {
        "queue_detail": [queues[0].pk],
        "queue_item": [queues[0].items.get().pk],
        "queue_work": [queues[1].pk],
        "queue_quick_pass": [queues[1].pk],
    }
    of |= {"queue_edit": [queues[0].pk], "queue_items": [queues[0].pk], "rubric_edit": ["clarity"]}
    pages = {name: reverse(f"dashboard:{name}", args=given) for name, given in of.items()}
    same = list(Rollout.objects.filter(task=rollout.task, status="completed").values_list("pk", flat=True)[:3])
    for name, query in (
        ("collection_compare", f"a={collection.pk}&b={later.pk}"),
        ("collection_changes", f"a={collection.pk}&b={later.pk}"),
        ("collection_matrix", "baseline=scripted"),
        ("rollout_compare", "r=" + ",".join(map(str, same))),
        ("find", "q=demo"),
    ):
        pages[name] = f"{reverse(f'dashboard:{name}')}?{query}"
    pages["rollout_find"] += "?q=the"
    start_setup(user=admin)
    print(json.dumps({"pages": pages, "uploads": Upload.objects.count()}))


def make_queues(rollout: Rollout) -> list[Queue]:
    """One that two people differ in, and one that the admin works in."""
    disputed = make_queue(pairs=1, overlap=2, name="Sums, disputed")
    for choice in ("a", "both_bad"):
        judge(disputed, make_user(Role.ANNOTATOR), choice, note="Look at the units.", reasons=["correctness"])
    worked = make_queue(pairs=2, name="Sums to judge", instructions="Which would you rather have been told?")
    claim(worked, User.objects.get(username="ada"))
    make_rubric(slug="clarity", name="Clarity")
    raise_flag(rollout=rollout, kind="verifier_wrong", author=User.objects.get(username="ada"), seq=2)
    return [disputed, worked]


PAGES_OF_DATASETS = (
    "dataset_detail",
    "dataset_upload",
    "dataset_edit",
    "dataset_changes",
    "dataset_metrics",
    "dataset_delete",
)
PAGES_OF_COLLECTIONS = (
    "collection_detail",
    "collection_results",
    "collection_breakdown",
    "collection_tasks",
    "collection_failures",
    "collection_tracking",
    "collection_delete",
)
PAGES_OF_ROLLOUTS = ("rollout_detail", "rollout_find")


if __name__ == "__main__":
    main()
