"""An image is stored once however many rows have it, and rows are still returned as uploaded."""

import hashlib
import io
import json

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from apps.tasks.dataset_changes import create_dataset
from apps.tasks.dataset_deletion import delete_next, queue_deletion
from apps.tasks.models import DatasetVersion, StoredImage, Upload, VersionImage
from apps.tasks.stored_images import delete_unused_images, full_row, replace_images, with_images
from apps.tasks.unchanged_rows import read_rows
from apps.tasks.upload_choices import Choices
from apps.tasks.upload_jobs import upload_file
from tests.factories import make_environment
from tests.images import make_png, png_url

pytestmark = pytest.mark.django_db


@pytest.fixture
def dataset():
    return create_dataset(slug="pictures", name="Pictures", environment=make_environment())


def load(dataset, content: bytes, **fields) -> Upload:
    return upload_file(dataset=dataset, stream=io.BytesIO(content), filename="tasks.jsonl", choices=Choices(**fields))


def make_row(*urls: str, **fields) -> dict[str, object]:
    parts = [{"type": "input_image", "image_url": url} for url in urls]
    asked = [{"role": "user", "content": [*parts, {"type": "input_text", "text": "What is it?"}]}]
    return {"responses_create_params": {"input": asked}, "expected_answer": "a dot", **fields}


def jsonl(*rows: object) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def downloaded(version: DatasetVersion) -> bytes:
    return b"".join(read_rows(version=version))


def test_an_image_is_stored_once_and_the_file_is_returned_byte_for_byte(dataset):
    spaced = json.dumps(make_row(png_url(shade=1), png_url(shade=2), id=1)).encode()
    content = spaced + b"\n" + orjson.dumps(make_row(png_url(shade=1), id=2))
    version = load(dataset, content).version
    assert downloaded(version) == content
    assert version.content_hash == hashlib.sha256(content).hexdigest()
    image, _ = StoredImage.objects.order_by("id")
    assert (image.kind, image.width, image.height, image.size) == ("image/png", 2, 3, len(make_png(shade=1)))
    assert (bytes(image.content), image.sha256) == (make_png(shade=1), hashlib.sha256(make_png(shade=1)).hexdigest())
    task = version.tasks.get(external_id="2")
    assert "base64" not in task.row_json
    reference = {"type": "input_image", "image_url": f"gymweb-image:{image.sha256}"}
    assert task.row["responses_create_params"]["input"][0]["content"][0] == reference
    assert full_row(task) == make_row(png_url(shade=1), id=2)


def test_a_parquet_file_of_verl_becomes_tasks_with_images(dataset):
    file = io.BytesIO()
    row = {
        "prompt": [{"role": "user", "content": "<image>What is it?"}],
        "images": [{"bytes": make_png(), "path": None}],
        "reward_model": {"ground_truth": "a dot"},
    }
    pq.write_table(pa.Table.from_pylist([row]), file)
    upload = load(dataset, file.getvalue())
    assert (upload.state, upload.shape) == ("ready", "verl")
    task = upload.version.tasks.get()
    assert full_row(task)["responses_create_params"]["input"][0]["content"][0]["image_url"] == png_url()
    assert StoredImage.objects.count() == 1


def test_merging_keeps_the_images_of_unchanged_tasks(dataset):
    load(dataset, jsonl(make_row(png_url(shade=1), id=1), make_row(png_url(shade=2), id=2)))
    version = load(dataset, jsonl(make_row(png_url(shade=3), id=2)), mode=Upload.Mode.UPSERT).version
    assert downloaded(version) == jsonl(make_row(png_url(shade=1), id=1), make_row(png_url(shade=3), id=2))
    assert version.content_hash == hashlib.sha256(downloaded(version)).hexdigest()
    assert version.changes["unchanged"] == 1
    queue_deletion(dataset=dataset, version=dataset.versions.get(number=1))
    delete_next()
    assert downloaded(version) == jsonl(make_row(png_url(shade=1), id=1), make_row(png_url(shade=3), id=2))


def test_deleting_a_dataset_deletes_images_that_no_other_one_has(dataset):
    other = create_dataset(slug="others", name="Others", environment=dataset.environment)
    load(dataset, jsonl(make_row(png_url(shade=1)), make_row(png_url(shade=2))))
    load(other, jsonl(make_row(png_url(shade=2))))
    queue_deletion(dataset=dataset)
    delete_next()
    assert bytes(StoredImage.objects.get().content) == make_png(shade=2)
    queue_deletion(dataset=other)
    delete_next()
    assert not StoredImage.objects.exists()


def test_a_rejected_or_checked_file_leaves_no_images(dataset, monkeypatch):
    monkeypatch.setattr("apps.tasks.version_loading.CHUNK_ROWS", 1)
    upload = load(dataset, jsonl(make_row(png_url()), make_row("data:image/png;base64,AAAA")))
    assert upload.state == "rejected"
    assert load(dataset, jsonl(make_row(png_url())), check_only=True).state == "checked"
    assert not StoredImage.objects.exists() and not VersionImage.objects.exists()


@pytest.mark.parametrize(
    ("urls", "code", "message"),
    [
        (
            ["data:image/png;base64,AAAA"],
            "bad_image",
            "/responses_create_params/input/0/content/0/image_url is not a PNG, JPEG, GIF or WebP image",
        ),
        (["data:image/svg+xml;base64,PHN2Zy8+"], "bad_image", "is not a base64 data URL of a PNG"),
        ([png_url()] * 65, "too_many_images", "the row has 65 images: the limit is 64"),
        (["gymweb-image:" + "0" * 64], "image_reference", "a reference to a stored image is not an image"),
    ],
)
def test_rows_with_other_images_are_rejected_with_their_place(dataset, urls, code, message):
    upload = load(dataset, jsonl(make_row(png_url(), id=1), make_row(*urls, id=2)))
    (error,) = upload.errors
    assert (upload.state, error["line"], error["code"]) == ("rejected", 2, code)
    assert message in error["message"]


def test_images_on_other_servers_stay_addresses(dataset):
    row = make_row("https://example.org/a.png")
    assert load(dataset, jsonl(row)).version.tasks.get().row == row
    assert not StoredImage.objects.exists()


ENDS_WITH_BITS_THAT_DECODING_LOSES = png_url(shade=1).removesuffix("g==") + "h=="


@pytest.mark.parametrize(
    "text",
    [
        f'{{"image_url":"{ENDS_WITH_BITS_THAT_DECODING_LOSES}"}}',
        f'{{"text":"{png_url()}"}}',
        f'{{"arguments":"{{\\"image_url\\":\\"{png_url()}\\"}}"}}',
        f'{{"image_url":"{png_url().replace("image/png", "image/gif")}"}}',
    ],
)
def test_texts_that_could_not_be_restored_stay(text):
    assert replace_images(text) == (text, {})


def test_credentials_are_never_found_inside_of_an_image(dataset):
    """These characters are legal in base64, and the form of a key of AWS."""
    row = orjson.dumps(make_row(png_url())).decode()
    url = png_url()[:-4] + "AKIAIOSFODNN7EXAMPL3" * 3 + "AAAA"
    assert png_url() in row
    version = load(dataset, row.replace(png_url(), url).encode(), on_credential="redact").version
    assert full_row(version.tasks.get()) == make_row(url)


def test_unknown_references_stay_and_images_in_use_are_kept(dataset):
    text = '{"image_url":"gymweb-image:%s"}' % ("0" * 64)
    assert with_images(text) == text
    load(dataset, jsonl(make_row(png_url())))
    assert delete_unused_images() == 0
    assert StoredImage.objects.count() == 1
