"""Keys of one's own."""

import pytest
from django.urls import reverse

from apps.accounts.key_bindings import KeymapRefused, remap_keys
from apps.accounts.models import User
from tests.dashboard.markup import read
from tests.dashboard.pages import signed_in
from tests.factories import make_user

pytestmark = pytest.mark.django_db


def test_new_keys_replace_all_earlier_choices():
    user = make_user()
    remap_keys(user=user, keymap={"trace.next": "d", "theme": ""})
    remap_keys(user=user, keymap={"trace.next": "Ctrl+d"})
    assert User.objects.get(pk=user.pk).keymap == {"trace.next": "Ctrl+d"}


@pytest.mark.parametrize(
    "keymap",
    [
        [],
        None,
        "x",
        {"Trace Next": "d"},
        {"trace.next": 1},
        {"trace.next": "d" * 31},
        {"trace.next": "\x1b"},
        {f"c{number}": "d" for number in range(301)},
    ],
)
def test_an_invalid_keymap_changes_nothing(keymap):
    user = make_user(keymap={"theme": "x"})
    with pytest.raises(KeymapRefused):
        remap_keys(user=user, keymap=keymap)
    assert User.objects.get(pk=user.pk).keymap == {"theme": "x"}


def test_a_page_tells_its_script_the_keys_of_who_reads_it():
    client, hostile = signed_in(), '"><script>'
    address = reverse("dashboard:account_keyboard")
    sent = [
        client.post(address, body, content_type="application/json").status_code
        for body in ('{"theme": "\\"><script>"}', "{", '{"theme": 1}')
    ]
    assert sent == [204, 422, 422]
    (body,) = read(client.get(reverse("dashboard:account")).text).all("body")
    assert body.attributes["data-keymap"] == '{"theme": "\\"><script>"}'
    assert hostile not in client.get(reverse("dashboard:account")).text
    assert "data-keymap" not in read(signed_in().get(reverse("dashboard:account")).text).all("body")[0].attributes
