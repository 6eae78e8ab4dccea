"""Going back to an address that a part of a page was pushed to: the whole page stands there again."""

import re

import pytest

from apps.accounts.models import Role
from tests.dashboard.pages import signed_in

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("address", ["/rollouts/?sort=reward", "/collections/?q=a", "/tasks/"])
def test_who_goes_back_gets_the_page_and_not_the_part_that_htmx_asked_for_before(address):
    client = signed_in(Role.VIEWER)
    restored = {"HX-Request": "true", "HX-History-Restore-Request": "true"}
    pages = [client.get(address, headers=headers) for headers in (restored, {})]
    assert [(page.status_code, page.text.count("<main"), page.text.count("<dialog")) for page in pages] == [
        (pages[1].status_code, pages[1].text.count("<main"), pages[1].text.count("<dialog"))
    ] * 2


def test_a_page_that_is_not_kept_is_loaded_and_its_scripts_begin_anew():
    """htmx would put the page into the old document, where no script knows the new elements."""
    page = signed_in(Role.VIEWER).get("/rollouts/").text
    assert re.search(r'"historyCacheSize":0,"refreshOnHistoryMiss":true', page)
