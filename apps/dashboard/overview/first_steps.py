"""First steps in a new installation, on pages or with commands. Each is done as soon as its rows exist."""

from dataclasses import dataclass
from urllib.parse import urlencode

from django.urls import reverse

from apps.exports.models import Export
from apps.pairs.models import PairSet
from apps.policies.models import PolicyModel
from apps.rollouts.models import Collection
from apps.tasks.models import Dataset, DatasetVersion

HIDDEN = "first_steps"
"""Name of the cookie of users who hide the steps."""


@dataclass(frozen=True)
class Step:
    """`command` runs on the server, `curl` works with an API key."""

    title: str
    text: str
    done: bool
    url: str
    link: str
    curl: str
    command: str


def read_steps(base: str) -> list[Step]:
    """Return the steps. `base` is the URL of this installation."""
    dataset = Dataset.objects.order_by("pk").first()
    slug = dataset.slug if dataset else "my-tasks"
    collected = Collection.objects.listed().filter(rewarded__gt=0).order_by("-pk").first()
    number = collected.pk if collected else 1
    chosen = f"?{urlencode({'collection': number})}" if collected else ""
    return [
        Step(
            title="Load tasks",
            text="Generate tasks with a built-in environment, or upload a JSONL, CSV or Parquet file.",
            done=DatasetVersion.objects.filter(state=DatasetVersion.State.READY).exists(),
            url=reverse("dashboard:dataset_upload", args=[slug]) if dataset else reverse("dashboard:dataset_create"),
            link="New dataset" if dataset is None else "Upload tasks",
            curl=_post(base, "datasets", f'{{"slug": "{slug}", "name": "My tasks", "environment": "exact_match"}}')
            + f"\ncurl -X POST {base}/api/v1/datasets/{slug}/uploads/ \\\n"
            '  -H "Authorization: Bearer $GYMWEB_KEY" -H "Content-Type: application/x-ndjson" \\\n'
            "  --data-binary @tasks.jsonl",
            command=f"python manage.py upload_tasks --dataset {slug} tasks.jsonl",
        ),
        Step(
            title="Add a policy model",
            text="Any OpenAI-compatible endpoint, for example a vLLM server. The scripted model needs no network.",
            done=PolicyModel.objects.exists(),
            url=reverse("dashboard:model_create"),
            link="New model",
            curl=_post(
                base,
                "policy-models",
                '{"slug": "my-model", "name": "My model", "provider": "compatible",\n'
                '       "base_url": "http://vllm.example:8000/v1", "model_name": "Qwen/Qwen3-8B"}',
            ),
            command="python manage.py vllm_serve /models/my-model",
        ),
        Step(
            title="Start a collection",
            text="A collection runs each task several times with an agent and a policy model, "
            "and scores every rollout.",
            done=collected is not None,
            url=reverse("dashboard:collection_create"),
            link="New collection",
            curl=_post(
                base,
                "collections",
                f'{{"dataset": "{slug}", "agent": "default", "policy_model": "my-model", "repeats": 4}}',
            ),
            command=f"python manage.py collect --dataset {slug} --agent default --model my-model --repeats 4",
        ),
        Step(
            title="Build preference pairs",
            text="A pair has a better and a worse rollout of the same task. DPO trains on pairs.",
            done=PairSet.objects.exists(),
            url=reverse("dashboard:pair_set_create") + chosen,
            link="New pair set",
            curl=_post(base, "pair-sets", f'{{"collection": {number}}}'),
            command="",
        ),
        Step(
            title="Export training data",
            text="Write files that TRL, NeMo RL, verl and other trainers load.",
            done=Export.objects.filter(state=Export.State.READY).exists(),
            url=reverse("dashboard:export_create") + chosen,
            link="New export",
            curl=_post(base, "exports", f'{{"collection": {number}, "format": "trl_sft"}}'),
            command=f"python manage.py export --collection {number} --format trl_sft",
        ),
    ]


def _post(base: str, noun: str, body: str) -> str:
    return (
        f"curl -X POST {base}/api/v1/{noun}/ \\\n"
        '  -H "Authorization: Bearer $GYMWEB_KEY" -H "Content-Type: application/json" \\\n'
        f"  -d '{body}'"
    )
