"""The way from an empty place to the first rewards, on pages or from a script."""

from dataclasses import dataclass

from apps.dashboard.chrome.destinations import find_url
from apps.environments.models import Environment
from apps.policies.models import PolicyModel
from apps.tasks.models import Dataset, DatasetVersion


@dataclass(frozen=True)
class Step:
    """`command` is for whoever sits at the server, `curl` for everybody with a key."""

    title: str
    text: str
    done: bool
    url: str
    link: str
    curl: str
    command: str


def read_steps(base: str) -> list[Step]:
    """A step is done when its rows are there. `base` is the address of this installation."""
    dataset = Dataset.objects.order_by("pk").first()
    slug = dataset.slug if dataset else "my-tasks"
    return [
        Step(
            title="Register an environment",
            text="What verifies and has the tools: a resource server by its address, or one of the built-in ones. A "
            "calculator and an exact-match environment are there from the beginning.",
            done=Environment.objects.exists(),
            url=find_url("environment_create"),
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
            text="One JSON object a line, in the NeMo Gym row format; CSV and Parquet too, with a mapping of columns.",
            done=DatasetVersion.objects.filter(state=DatasetVersion.State.READY).exists(),
            url=find_url("dataset_create") if dataset is None else find_url("dataset_upload", slug),
            link="New dataset" if dataset is None else "Upload tasks",
            curl=_post(base, "datasets", f'{{"slug": "{slug}", "name": "My tasks", "environment": "exact_match"}}')
            + f"\ncurl -X POST {base}/api/v1/datasets/{slug}/uploads/ \\\n"
            '  -H "Authorization: Bearer $GYMWEB_KEY" -H "Content-Type: application/x-ndjson" \\\n'
            "  --data-binary @tasks.jsonl",
            command=f"python manage.py upload_tasks --dataset {slug} tasks.jsonl",
        ),
        Step(
            title="Add a policy model",
            text="Any OpenAI-compatible endpoint, such as a vLLM server. A scripted model needs no network.",
            done=PolicyModel.objects.exists(),
            url=find_url("model_create"),
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
            title="Plan a collection",
            text="Dataset × agent × policy model × repeats: each task is attempted so many times, and every attempt "
            "is scored.",
            done=False,
            url=find_url("collection_create"),
            link="Plan a collection",
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
