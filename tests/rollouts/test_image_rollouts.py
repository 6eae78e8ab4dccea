"""Image tasks run through the engine: models get the images, and traces refer to them."""

import io
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest
import yaml
from aiohttp import web
from asgiref.sync import async_to_sync, sync_to_async
from django.urls import reverse

from apps.accounts.models import Role
from apps.environments.models import Environment
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, ExportRefused, queue_export
from apps.pairs.trace_reader import read_traces
from apps.policies.models import Provider
from apps.reviews.models import Queue
from apps.reviews.queues.queue_changes import create_queue
from apps.reviews.queues.queue_items import fill_from_sets
from apps.rollouts.models import Collection, Rollout, TraceEvent, TraceImage
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.steering.collection_deletion import delete_next_collection, queue_collection_deletion
from apps.rollouts.steering.local_worker import finish_collection
from apps.rollouts.streams.rollout_stream import describe_rollout
from apps.tasks.dataset_changes import create_dataset
from apps.tasks.dataset_deletion import delete_next, queue_deletion
from apps.tasks.models import StoredImage
from apps.tasks.upload_jobs import upload_file
from tests.factories import make_agent, make_policy_model, make_user
from tests.images import make_png, png_url
from tests.rollouts.work import serve_chat

pytestmark = pytest.mark.usefixtures("migrated")


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.WORKER_BACKGROUND_JOBS = []
    settings.WORKER_GRACE_SECONDS = 5


def image_row(width: int) -> dict[str, object]:
    parts = [
        {"type": "input_image", "image_url": png_url(width=width)},
        {"type": "input_text", "text": "How wide is it? Answer in \\boxed{}."},
    ]
    asked = [{"role": "user", "content": parts}]
    return {"responses_create_params": {"input": asked}, "expected_answer": str(width)}


def plan_images(model, repeats: int) -> Collection:
    dataset = create_dataset(slug="pictures", name="Pictures", environment=Environment.objects.get(slug="exact_match"))
    rows = b"".join(orjson.dumps(image_row(width)) + b"\n" for width in (20, 30))
    assert upload_file(dataset=dataset, stream=io.BytesIO(rows), filename="x.jsonl").state == "ready"
    return plan_collection(Plan(dataset=dataset, agent=make_agent(), policy_model=model, repeats=repeats))


def collect(repeats: int = 2) -> Collection:
    planned = plan_images(make_policy_model(mistake_rate=0.0), repeats)
    return async_to_sync(finish_collection)(planned, progress=lambda _: None)


def test_a_scripted_model_sees_the_images_and_the_trace_refers_to_them():
    collection = collect()
    assert (collection.state, collection.completed, collection.mean_reward) == ("completed", 4, 1.0)
    for event in TraceEvent.objects.all():
        assert "base64" not in event.payload
    assert TraceEvent.objects.filter(kind="prompt").count() == 4
    assert StoredImage.objects.count() == TraceImage.objects.count() == 2
    rollout = Rollout.objects.filter(task__index=0).first()
    sent = rollout.trace()[1].items[0]["content"][0]["image_url"]
    assert sent == png_url(width=20)
    assert describe_rollout(rollout, rollout.graph(images=True))["prompt"][0]["content"][0]["image_url"] == sent
    ((_, events),) = read_traces({rollout.pk: rollout.attempt}, images=True)
    assert events[1].items[0]["content"][0]["image_url"] == sent


def test_an_endpoint_gets_data_urls(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    sent = []

    async def answer(request):
        sent.extend((await request.json())["messages"][-1]["content"])
        reply = {"role": "assistant", "content": "\\boxed{20}"}
        return web.json_response({"choices": [{"message": reply, "finish_reason": "stop"}], "usage": {}})

    async def run(plan_images):
        runner, port = await serve_chat(answer)
        fields = {"provider": Provider.COMPATIBLE, "base_url": f"http://127.0.0.1:{port}/v1", "model_name": "m"}
        planned = await sync_to_async(plan_images)(fields)
        finished = await finish_collection(planned, progress=lambda _: None)
        await runner.cleanup()
        return finished

    assert async_to_sync(run)(lambda fields: plan_images(make_policy_model(**fields), repeats=1)).mean_reward == 0.5
    urls = [part["image_url"]["url"] for part in sent if part["type"] == "image_url"]
    assert sorted(urls) == sorted([png_url(width=20), png_url(width=30)])


def test_images_are_kept_until_the_last_collection_and_dataset_are_deleted():
    collection = collect(repeats=1)
    queue_collection_deletion(collection=collection)
    delete_next_collection()
    assert (TraceImage.objects.count(), StoredImage.objects.count()) == (0, 2)
    queue_deletion(dataset=collection.dataset)
    delete_next()
    assert StoredImage.objects.count() == 0


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ANNOTATOR])
def test_pages_show_images_from_their_own_address(client, role):
    rollout = Rollout.objects.filter(collection=collect(repeats=1), task__index=0).get()
    image = StoredImage.objects.get(width=20)
    address = reverse("dashboard:stored_image", args=[image.sha256])
    assert client.get(address).status_code == 302
    client.force_login(make_user(role))
    shown = client.get(address)
    assert (shown.content, shown["Content-Type"]) == (make_png(width=20), "image/png")
    assert shown["Cache-Control"] == "private, max-age=31536000, immutable"
    assert shown["X-Content-Type-Options"] == "nosniff"
    assert shown["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert client.get(reverse("dashboard:stored_image", args=["0" * 64])).status_code == 404
    if role == Role.VIEWER:
        for page in ("rollout_detail", "task_detail"):
            text = client.get(
                reverse(f"dashboard:{page}", args=[rollout.pk if "rollout" in page else rollout.task_id])
            ).text
            assert f'src="{address}"' in text
            assert "base64" not in text
        saved = b"".join(client.get(reverse("dashboard:rollout_file", args=[rollout.pk])))
        assert f'src="{png_url(width=20)}"'.encode() in saved


def write(collection, slug: str, **options) -> Path:
    order = ExportOrder(format=slug, collection=collection, options=options, filters={"dedupe": False})
    export = write_export(export=queue_export(order))
    assert (export.state, export.manifest["rows"], export.manifest["counts"]["dropped"]) == ("ready", 4, {})
    return next(path for path in Path(export.path).iterdir() if path.stem == "train")


def test_five_exports_have_the_images_as_their_loaders_open_them(settings, tmp_path):
    settings.EXPORTS_DIR = tmp_path
    collection = collect()
    images = sorted([make_png(width=20), make_png(width=30)] * 2)
    for slug in ("trl_sft", "verl_sft", "llama_factory_sft"):
        path = write(collection, slug, images="column")
        assert path.suffix == ".parquet"
        read = pq.read_table(path).to_pylist()
        assert sorted(image["bytes"] for row in read for image in row["images"]) == images
    card = yaml.safe_load(path.with_name("README.md").read_text().split("---")[1])
    assert {"name": "images", "list": "image"} in card["dataset_info"]["features"]
    assert read[0]["conversations"][0] == {
        "from": "human",
        "value": "<image>\nHow wide is it? Answer in \\boxed{}.",
    }
    for slug in ("openai_sft", "nemo_gym_rollouts", "atif"):
        text = write(collection, slug).read_text()
        assert [text.count(png_url(width=width)) for width in (20, 30)] == [2, 2]
        assert "gymweb-image" not in text


def test_a_column_of_images_needs_a_file_that_can_hold_it():
    order = ExportOrder(format="trl_sft", collection=collect(repeats=1), options={"images": "column"}, encoding="jsonl")
    with pytest.raises(ExportRefused, match="with a column of images cannot be written as jsonl"):
        queue_export(order)


def test_a_review_shows_the_images_of_both_sides(client):
    collect()
    sides = list(Rollout.objects.filter(task__index=0).values_list("pk", flat=True))
    items = fill_from_sets([sides], kind="pairwise")
    queue = create_queue(queue=Queue(name="Queue", kind="pairwise"), items=items, reviewers=[], user=None)
    client.force_login(make_user(Role.ANNOTATOR))
    page = client.post(reverse("dashboard:queue_work", args=[queue.pk]), follow=True).text
    address = reverse("dashboard:stored_image", args=[StoredImage.objects.get(width=20).sha256])
    assert f'src="{address}"' in page
    assert "base64" not in page


def test_the_api_and_downloads_have_the_images(client):
    rollout = Rollout.objects.filter(collection=collect(repeats=1), task__index=0).get()
    client.force_login(make_user(Role.VIEWER))
    url = png_url(width=20)
    for path in (f"rollouts/{rollout.pk}/trace/", f"tasks/{rollout.task_id}/"):
        text = client.get(f"/api/v1/{path}").content.decode()
        assert (text.count(url), "gymweb-image" in text) == (1, False)
    raw = b"".join(client.get(reverse("dashboard:rollout_raw", args=[rollout.pk]))).decode()
    assert (raw.count(url), "gymweb-image" in raw) == (1, False)
