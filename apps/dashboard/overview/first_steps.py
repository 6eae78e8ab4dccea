"""First steps in an empty installation, on pages or with commands."""

from dataclasses import dataclass

from django.urls import reverse

from apps.environments.models import Environment
from apps.policies.models import PolicyModel
from apps.tasks.models import Dataset, DatasetVersion


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
    """Return the steps, done if their rows exist. `base` is the URL of this installation."""
    dataset = Dataset.objects.order_by("pk").first()
    slug = dataset.slug if dataset else "my-tasks"
    return [
        Step(
            title="Register an environment",
            text="An environment provides tools and a verifier: a resource server or a built-in one. A calculator "
            "and an exact-match environment are ready to use.",
            done=Environment.objects.exists(),
            url=reverse("dashboard:environment_create"),
            link="New environment",
            curl=_post(
                base,
                "environments",
                '{"slug": "my-environment", "name": "My environment", "adapter": "http",\n'
                '       "base_url": "http://tools.example:9000"}',
            ),
            command="gymweb import config my_config.yaml",
        ),
        Step(
            title="Create a dataset and upload tasks",
            text="One JSON object per line in the NeMo Gym row format, or CSV and Parquet with a column mapping.",
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
            "and scores every attempt.",
            done=False,
            url=reverse("dashboard:collection_create"),
            link="Start a collection",
            curl=_post(
                base,
                "collections",
                f'{{"dataset": "{slug}", "agent": "default", "policy_model": "my-model", "repeats": 4}}',
            ),
            command=f"python manage.py collect --dataset {slug} --agent default --model my-model --repeats 4",
        ),
    ]


def _post(base: str, noun: str, body: str) -> str:
    return (
        f"curl -X POST {base}/api/v1/{noun}/ \\\n"
        '  -H "Authorization: Bearer $GYMWEB_KEY" -H "Content-Type: application/json" \\\n'
        f"  -d '{body}'"
    )
