"""Claims of the job that indexes words keep their limit on PostgreSQL, whatever its statistics say."""

import pytest

from tests.faults.installation import Installation

pytestmark = pytest.mark.slow

# An analysed table without rows looks to PostgreSQL as if it stayed empty.
PROGRAM = """
from django.db import connection
from django.utils import timezone
from apps.rollouts.models import Rollout, UnindexedRollout
from apps.rollouts.search import word_index

rows = [UnindexedRollout(rollout_id=pk, attempt=1, tries=0) for pk in Rollout.objects.values_list("pk", flat=True)]
UnindexedRollout.objects.bulk_create(rows)
UnindexedRollout.objects.all().delete()
with connection.cursor() as cursor:
    cursor.execute("ANALYZE rollouts_unindexedrollout")
UnindexedRollout.objects.bulk_create(rows)
print("claimed", [len(word_index._claim(timezone.now())) for _ in range(3)])
"""


def test_a_claim_takes_no_more_than_its_limit(cluster: Installation) -> None:
    cluster.plan(
        models={"none": {"base_url": "http://127.0.0.1:9/v1"}},
        environments={"none": {"base_url": "http://127.0.0.1:9/v1"}},
        collections={"many": {"faults": [""] * 600, "model": "none", "environment": "none"}},
    )
    program = cluster.start("indexing", "manage.py", "shell", "-c", PROGRAM)
    assert program.wait(60) == 0, program.said
    assert "claimed [250, 250, 100]" in program.said
