"""Home: what goes on, what came out, what failed; for an empty place, the first steps."""

from dataclasses import dataclass

from django.db.models import Count, Sum
from django.http import HttpRequest, HttpResponse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.answering import answer
from apps.dashboard.causes import CAUSES
from apps.dashboard.context import find_url
from apps.environments.models import Environment
from apps.policies.models import PolicyModel
from apps.rollouts.models import Collection, Rollout
from apps.tasks.models import Dataset, DatasetVersion

_LATEST = 8
_ACTIVE = [Collection.State.PLANNING, Collection.State.RUNNING, Collection.State.PAUSED]


@dataclass(frozen=True)
class Step:
    title: str
    text: str
    done: bool
    url: str
    link: str
    permission: Permission
    curl: str = ""


def _steps(base: str) -> list[Step]:
    """The way to the first rewards; a step is done when its rows are there."""
    dataset = Dataset.objects.order_by("pk").first()
    slug = dataset.slug if dataset else "my-tasks"
    return [
        Step(
            title="Create a dataset and upload tasks",
            text="One JSON object a line, in the NeMo Gym row format. A calculator and an exact-match environment are "
            "built in, so there is something to score with.",
            done=DatasetVersion.objects.filter(state=DatasetVersion.State.READY).exists(),
            url=find_url("dataset_create") if dataset is None else find_url("dataset_upload", slug),
            link="New dataset" if dataset is None else "Upload tasks",
            permission=Permission.UPLOAD,
            curl=f"curl -X POST {base}/api/v1/datasets/ \\\n"
            '  -H "Authorization: Bearer $GYMWEB_KEY" -H "Content-Type: application/json" \\\n'
            f'  -d \'{{"slug": "{slug}", "name": "My tasks", "environment": "exact_match"}}\'\n'
            f"curl -X POST {base}/api/v1/datasets/{slug}/uploads/ \\\n"
            '  -H "Authorization: Bearer $GYMWEB_KEY" -H "Content-Type: application/x-ndjson" \\\n'
            "  --data-binary @tasks.jsonl",
        ),
        Step(
            title="Add a policy model",
            text="Any OpenAI-compatible endpoint, such as a vLLM server. A scripted model needs no network.",
            done=PolicyModel.objects.exists(),
            url=find_url("model_create"),
            link="New model",
            permission=Permission.MODELS,
            curl=f"curl -X POST {base}/api/v1/policy-models/ \\\n"
            '  -H "Authorization: Bearer $GYMWEB_KEY" -H "Content-Type: application/json" \\\n'
            '  -d \'{"slug": "my-model", "name": "My model", "provider": "compatible",\n'
            '       "base_url": "http://vllm.example:8000/v1", "model_name": "Qwen/Qwen3-8B"}\'',
        ),
        Step(
            title="Plan a collection",
            text="Dataset × agent × policy model × repeats: each task is attempted so many times, and every attempt "
            "is scored.",
            done=False,
            url=find_url("collection_create"),
            link="Plan a collection",
            permission=Permission.COLLECT,
            curl=f"curl -X POST {base}/api/v1/collections/ \\\n"
            '  -H "Authorization: Bearer $GYMWEB_KEY" -H "Content-Type: application/json" \\\n'
            f'  -d \'{{"dataset": "{slug}", "agent": "default", "policy_model": "my-model", "repeats": 4}}\'',
        ),
    ]


def _task_count() -> int:
    """From the versions' own counts: counting millions of rows would make home slow."""
    ready = DatasetVersion.objects.filter(state=DatasetVersion.State.READY)
    total: int = ready.aggregate(total=Sum("task_count", default=0))["total"]
    return total


def _failures(collections: list[Collection]) -> list[dict[str, object]]:
    """Failed rollouts of these collections by cause, the most frequent first."""
    touched = [collection.pk for collection in collections if collection.failed]
    counted = (
        Rollout.objects.filter(collection__in=touched, status=Rollout.Status.FAILED)
        .values("error_kind")
        .annotate(count=Count("pk"))
        .order_by("-count", "error_kind")
    )
    return [{**row, "meaning": CAUSES.get(row["error_kind"], "")} for row in counted]


@allow(GET=Permission.READ)
def home(request: HttpRequest) -> HttpResponse:
    collections = Collection.objects.listed().select_related("dataset", "policy_model", "agent")
    active = list(collections.filter(state__in=_ACTIVE)[:_LATEST])
    latest = list(collections.exclude(state__in=_ACTIVE)[:_LATEST])
    is_new = not active and not latest
    context = {
        "active": active,
        "latest": latest,
        "failures": _failures([*active, *latest]),
        "steps": _steps(f"{request.scheme}://{request.get_host()}") if is_new else [],
        "counts": [
            ("Datasets", Dataset.objects.count()),
            ("Tasks", _task_count()),
            ("Environments", Environment.objects.count()),
            ("Models", PolicyModel.objects.count()),
            ("Collections", Collection.objects.listed().count()),
        ],
    }
    return answer(request, "home/home.html", context, part="overview")
