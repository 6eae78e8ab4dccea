"""Suites are saved with their datasets in order."""

import pytest
from django.core.exceptions import ValidationError

from apps.accounts.models import AuditEntry
from apps.tasks.models import Suite
from apps.tasks.suite_changes import MAX_DATASETS, delete_suite, save_suite
from tests.factories import make_dataset, make_user

pytestmark = pytest.mark.django_db


def test_a_suite_keeps_the_order_of_its_datasets_and_the_log_has_it():
    sums, words = make_dataset(slug="sums"), make_dataset(slug="words")
    user = make_user()
    save_suite(suite=Suite(slug="math", name="Math", datasets=[words, sums]), user=user)
    suite = Suite.objects.get(slug="math")
    assert suite.datasets == [words, sums]
    suite.datasets = [sums, words]
    save_suite(suite=suite, user=user)
    assert Suite.objects.get(slug="math").datasets == [sums, words]
    entry = AuditEntry.objects.get(action="suite.change", target="math")
    assert (entry.before, entry.after) == ({"datasets": ["words", "sums"]}, {"datasets": ["sums", "words"]})


def test_a_suite_that_is_saved_without_new_datasets_keeps_them():
    suite = save_suite(suite=Suite(slug="math", name="Math", datasets=[make_dataset(slug="sums")]), user=None)
    suite = Suite.objects.get(pk=suite.pk)
    suite.name = "Mathematics"
    save_suite(suite=suite, user=None)
    assert [one.slug for one in Suite.objects.get(name="Mathematics").datasets] == ["sums"]


@pytest.mark.parametrize(("count", "twice"), [(0, False), (MAX_DATASETS + 1, False), (1, True)])
def test_a_list_of_datasets_that_cannot_be_is_refused(count, twice):
    datasets = [make_dataset() for _ in range(count)]
    suite = Suite(slug="math", name="Math", datasets=datasets * (1 + twice))
    with pytest.raises(ValidationError) as refused:
        save_suite(suite=suite, user=None)
    assert list(refused.value.message_dict) == ["datasets"]
    assert not Suite.objects.exists()


def test_a_deleted_suite_leaves_its_datasets_and_the_log_has_it():
    sums = make_dataset(slug="sums")
    suite = save_suite(suite=Suite(slug="math", name="Math", datasets=[sums]), user=None)
    delete_suite(suite=suite, user=make_user())
    sums.refresh_from_db()
    assert not Suite.objects.exists()
    assert AuditEntry.objects.get(action="suite.delete", target="math").before["datasets"] == ["sums"]


def test_a_deleted_dataset_leaves_its_suites():
    sums, words = make_dataset(slug="sums"), make_dataset(slug="words")
    suite = save_suite(suite=Suite(slug="math", name="Math", datasets=[words, sums]), user=None)
    words.versions.all().delete()
    words.delete()
    assert Suite.objects.get(pk=suite.pk).datasets == [sums]
