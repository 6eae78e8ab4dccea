"""Any sequence of uploads leaves what a dictionary of ids would hold, and counts what changed as a comparison does."""

import io

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.tasks import unchanged_rows, version_loading
from apps.tasks.dataset_changes import create_dataset
from apps.tasks.models import DatasetVersion
from apps.tasks.upload_choices import Choices
from apps.tasks.upload_jobs import upload_file
from apps.tasks.version_differences import KINDS, count_changes, find_changes
from tests.factories import make_environment, make_row

pytestmark = pytest.mark.django_db

ROWS = st.dictionaries(st.integers(0, 9), st.integers(0, 2), min_size=1, max_size=8)
UPLOADS = st.lists(st.tuples(st.sampled_from(["replace", "upsert"]), ROWS), min_size=1, max_size=4)


def counted(old: DatasetVersion, new: DatasetVersion) -> dict[str, int]:
    """Without what was stored as the version was loaded."""
    return {kind: find_changes(old=old, new=new, kind=kind).count() for kind in KINDS}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(uploads=UPLOADS, size=st.integers(1, 4))
def test_versions_equal_a_dictionary(db, monkeypatch, uploads, size):
    monkeypatch.setattr(version_loading, "CHUNK_ROWS", size)
    monkeypatch.setattr(unchanged_rows, "COPIED_ROWS", size)
    environment = make_environment()
    dataset = create_dataset(slug=environment.slug, name="Model", environment=environment)
    held: dict[int, int] = {}
    before: DatasetVersion | None = None
    for mode, rows in uploads:
        content = b"".join(orjson.dumps(make_row(f"Q{key}", str(value), id=key)) + b"\n" for key, value in rows.items())
        upload = upload_file(
            dataset=dataset, stream=io.BytesIO(content), filename="a.jsonl", choices=Choices(mode=mode)
        )
        held = {**held, **rows} if mode == "upsert" else dict(rows)
        version = upload.version
        stored = version.tasks.order_by("index")
        assert [(int(task.external_id), int(task.row["expected_answer"])) for task in stored] == list(held.items())
        assert [task.index for task in stored] == list(range(len(held)))
        assert (version.task_count, version.metrics["examples"]) == (len(held), len(held))
        if before is not None:
            counts = count_changes(old=before, new=version)
            assert {kind: counts[kind] for kind in KINDS} == counted(before, version)
            assert counts["unchanged"] + counts["added"] + counts["changed"] == len(held)
        before = version
