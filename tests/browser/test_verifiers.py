"""A verifier is chosen, configured, tried and saved in a browser."""

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.slow


def test_choosing_a_verifier_brings_its_parameters_and_saving_keeps_them(site, tab):
    tab.goto(f"{site.base}/environments/new/")
    tab.fill("[name=name]", "Word problems")
    tab.select_option("[name=adapter]", "declared")
    expect(tab.locator("[name=choose_verifier]")).to_be_hidden()
    tab.select_option("[name=verifier_type]", "numeric")
    tab.fill("[name=verifier_absolute_tolerance]", "-1")
    expect(tab.locator("[name=name]")).to_have_value("Word problems")
    expect(tab.locator("[name=adapter]")).to_have_value("declared")
    expect(tab.locator("[name=base_url]")).to_be_hidden()
    tab.get_by_role("button", name="Save environment").click()
    expect(tab.locator("#id_verifier_absolute_tolerance_error")).to_contain_text("greater than or equal to 0")
    tab.fill("[name=verifier_absolute_tolerance]", "0.5")
    tab.get_by_role("button", name="Save environment").click()
    expect(tab.get_by_role("heading", name="Word problems")).to_be_visible()
    assert site.api("GET", "environments/word-problems/")["verifier"] == {"type": "numeric", "absolute_tolerance": 0.5}


def test_a_verifier_is_tried_with_its_example(site, tab):
    tab.goto(f"{site.base}/verifiers/")
    tab.get_by_role("link", name="Hybrid").click()
    tab.get_by_role("button", name="Verify").click()
    result = tab.locator("#verifier-result")
    expect(result.get_by_role("heading")).to_have_text("Reward 1")
    expect(result).to_contain_text("right 1: ")
