"""Agreement with blind reviews on the page and in the metrics of a collection with a judge."""

import pytest

from tests.reviews.queues import annotator
from tests.reviews.test_reward_agreement import rewarded
from tests.reviews.test_scan_accuracy import review_all, right

pytestmark = pytest.mark.django_db


def reviewed():
    queue, collection = rewarded([0.9, 0.4, 0.3, 0.1, 0.6])
    review_all(queue, annotator(), **right(True, True, False, False, False))
    collection.snapshot |= {"environment": {"judge": {"slug": "rm", "rubric": "", "settings": {}}}}
    collection.save()
    return collection


def test_the_judge_of_a_collection_is_compared_with_blind_reviews(pages):
    collection = reviewed()
    page = pages.get(f"/collections/{collection.pk}/results/").content.decode()
    card = page[page.index('id="judge-figures"') :].split("</dl>")[0]
    assert "Is it right?" in card
    assert "60 % of 5" in card
    assert "AUC 0.833" in card
    metrics = pages.get(f"/api/v1/collections/{collection.pk}/metrics/").json()
    [found] = metrics["blind_reviews"]
    assert (found["criterion"], found["rollouts"], found["same"], found["auc"]) == ("right", 5, 3, 5 / 6)
