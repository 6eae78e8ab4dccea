"""Single sign-on at a real provider, codes of an authenticator app, invitations, and revoked sessions."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyotp
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import PASSWORD, Site, open_site
from tests.browser.faults import faults_of
from tests.browser.oidc import Provider, provider_of

pytestmark = pytest.mark.slow
SIGN_IN = re.compile(r"/sign-in/")


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with provider_of(tmp_path_factory.mktemp("provider")) as running:
        running.set_account("grace", "gym-admins", email="grace@example.org", email_verified=True)
        yield running


@pytest.fixture(scope="module")
def gate(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site of its own, whose users sign in at the provider or with a password."""
    folder = tmp_path_factory.mktemp("gate")
    with open_site(folder, "--port", str(provider.gymweb_port), **provider.settings) as opened:
        yield opened


@contextmanager
def browser_of(chromium: Browser, agent: str = "") -> Iterator[Page]:
    """A browser without cookies."""
    context = chromium.new_context(user_agent=agent) if agent else chromium.new_context()
    # The provider's own page asks for fonts of another site.
    context.route(re.compile(r"^https?://(?!127\.0\.0\.1[:/])"), lambda route: route.abort())
    yield context.new_page()
    context.close()


def sign_in_at_provider(page: Page, site: Site, name: str, path: str = "/") -> None:
    """Open a page of GymWeb, choose single sign-on, and sign in at the provider."""
    page.goto(f"{site.base}{path}")
    page.get_by_role("link", name="Sign in with Test login").click()
    page.fill("[name=login]", name)
    page.fill("[name=password]", "any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()
    page.wait_for_url(f"{site.base}/**")


def send_password(page: Page, site: Site, username: str, password: str = PASSWORD, path: str = "/account/") -> None:
    page.goto(f"{site.base}{path}")
    page.fill("[name=username]", username)
    page.fill("[name=password]", password)
    page.get_by_role("button", name="Sign in", exact=True).click()


def heading(page: Page) -> str:
    return page.locator("h1").inner_text()


def test_a_group_gives_a_role_and_the_requested_page(chromium: Browser, gate: Site, provider: Provider) -> None:
    provider.set_account("ada", "other", "gym-engineers")
    with browser_of(chromium) as page:
        sign_in_at_provider(page, gate, "ada", "/agents/?q=a")
        expect(page).to_have_url(f"{gate.base}/agents/?q=a")
        wrong = faults_of(page)
        page.goto(f"{gate.base}/account/")
        expect(page.locator("main")).to_contain_text("Role: engineer")
        expect(page.locator("#sessions tbody tr")).to_have_count(1)
        # A password would bypass the provider.
        expect(page.locator("#password input")).to_have_count(0)
        assert wrong == []


def test_without_a_mapped_group_a_user_gets_in_nowhere(chromium: Browser, gate: Site, provider: Provider) -> None:
    provider.set_account("eve", "other")
    with browser_of(chromium) as page:
        sign_in_at_provider(page, gate, "eve", "/agents/")
        expect(page.locator(".message.error")).to_contain_text("no group")
        for path in ("/", "/agents/", "/account/", "/queues/", "/api/docs/"):
            page.goto(f"{gate.base}{path}")
            expect(page).to_have_url(SIGN_IN)
        assert page.request.get(f"{gate.base}/api/v1/me/").status == 401
    with browser_of(chromium) as admin:
        sign_in_at_provider(admin, gate, "grace", "/people/")
        expect(admin.get_by_role("link", name="grace", exact=True)).to_be_visible()
        expect(admin.get_by_role("link", name="eve", exact=True)).to_have_count(0)


def test_a_lost_group_ends_open_sessions_and_a_new_one_gives_its_role(
    chromium: Browser, gate: Site, provider: Provider
) -> None:
    provider.set_account("alan", "gym-engineers")
    with browser_of(chromium) as first, browser_of(chromium) as second:
        sign_in_at_provider(first, gate, "alan", "/agents/")
        assert heading(first) == "Agents"
        provider.set_account("alan")
        sign_in_at_provider(second, gate, "alan")
        expect(second.locator(".message.error")).to_contain_text("no group")
        first.goto(f"{gate.base}/agents/")
        expect(first).to_have_url(SIGN_IN)
        provider.set_account("alan", "gym-annotators")
        second.get_by_role("link", name="Sign in with Test login").click()
        expect(second).to_have_url(f"{gate.base}/queues/")
        assert second.goto(f"{gate.base}/agents/").status == 403


def test_the_name_of_a_password_account_does_not_open_it(chromium: Browser, gate: Site, provider: Provider) -> None:
    provider.set_account("mallory", "gym-annotators", preferred_username="erika", email="erika@example.org")
    with browser_of(chromium) as page:
        sign_in_at_provider(page, gate, "mallory", "/account/")
        assert heading(page) == "erika-2"


def test_an_interrupted_sign_in_says_so(chromium: Browser, gate: Site) -> None:
    with browser_of(chromium) as page:
        for query in ("?code=stolen&state=unknown", "?error=access_denied", ""):
            reply = page.goto(f"{gate.base}/sign-in/oidc/callback/{query}")
            assert reply and reply.status == 403
            expect(page.locator(".message.error")).to_contain_text("failed")
        page.goto(f"{gate.base}/account/")
        expect(page).to_have_url(SIGN_IN)


def test_a_password_alone_does_not_pass_two_factor_authentication(chromium: Browser, gate: Site) -> None:
    with browser_of(chromium) as page:
        send_password(page, gate, "erika")
        page.get_by_role("link", name="Set up").click()
        page.fill("[name=password]", PASSWORD)
        page.get_by_role("button", name="Continue").click()
        expect(page.locator("img.qr-code")).to_be_visible()
        totp = pyotp.TOTP(page.locator("#totp-secret").inner_text().replace(" ", ""))
        page.fill("[name=code]", totp.now())
        page.get_by_role("button", name="Turn on").click()
        recovery = page.locator("#recovery-codes").inner_text().split()
        assert len(recovery) == 10
    with browser_of(chromium) as thief:
        send_password(thief, gate, "erika")
        expect(thief).to_have_url(re.compile("/sign-in/code/"))
        thief.fill("[name=code]", "000000")
        thief.get_by_role("button", name="Sign in").click()
        expect(thief.locator(".errors").last).to_contain_text("wrong")
        thief.goto(f"{gate.base}/account/")
        expect(thief).to_have_url(SIGN_IN)
    with browser_of(chromium) as page:
        send_password(page, gate, "erika")
        # The setup has used the code of now.
        page.fill("[name=code]", totp.at(time.time() + 30))
        page.get_by_role("button", name="Sign in").click()
        expect(page).to_have_url(f"{gate.base}/account/")
        expect(page.locator("#two-factor")).to_contain_text("10 recovery codes")
    for landed in (re.compile("/account/"), re.compile("/sign-in/code/")):
        with browser_of(chromium) as page:
            send_password(page, gate, "erika")
            page.fill("[name=code]", recovery[0].upper())
            page.get_by_role("button", name="Sign in").click()
            expect(page).to_have_url(landed)
    with browser_of(chromium) as page:
        send_password(page, gate, "erika")
        page.fill("[name=code]", recovery[1])
        page.get_by_role("button", name="Sign in").click()
        page.goto(f"{gate.base}/account/two-factor/")
        page.fill("[name=remove-code]", recovery[2])
        page.get_by_role("button", name="Turn off").click()
        expect(page.locator("#two-factor")).to_contain_text("Set up")


def test_an_invitation_works_once_and_fixes_the_role(chromium: Browser, gate: Site) -> None:
    with browser_of(chromium) as admin:
        sign_in_at_provider(admin, gate, "grace", "/people/")
        admin.get_by_role("link", name="Invite user").click()
        admin.fill("[name=email]", "ida@example.org")
        admin.select_option("[name=role]", "annotator")
        admin.get_by_role("button", name="Create invitation").click()
        link = admin.locator("#invitation-link").inner_text()
        admin.goto(f"{gate.base}/people/")
        expect(admin.get_by_role("region", name="Open invitations")).to_contain_text("ida@example.org")
        with browser_of(chromium) as page:
            page.goto(link)
            expect(page.locator("main")).to_contain_text("Your role: annotator")
            page.fill("[name=username]", "ida")
            for field in ("password", "again"):
                page.fill(f"[name={field}]", "a staple of correct horses")
            page.get_by_role("button", name="Create account").click()
            expect(page).to_have_url(f"{gate.base}/queues/")
        with browser_of(chromium) as page:
            reply = page.goto(link)
            assert reply and reply.status == 410
            send_password(page, gate, "ida", "a staple of correct horses")
            expect(page.locator("main")).to_contain_text("Role: annotator")
        admin.reload()
        expect(admin.get_by_role("region", name="Open invitations")).to_have_count(0)


FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


def test_a_revoked_session_ends_with_its_live_page(chromium: Browser, gate: Site) -> None:
    with gate.held_model(), browser_of(chromium, FIREFOX) as other, browser_of(chromium) as mine:
        collection = gate.plan(repeats=1, limit=2)
        send_password(other, gate, "erika", path="/")
        with other.expect_websocket() as opened:
            other.goto(f"{gate.base}/collections/{collection['id']}/")
        send_password(mine, gate, "erika")
        row = mine.locator("#sessions tbody tr", has_text="Firefox on Linux")
        expect(row).to_contain_text("127.0.0.1")
        row.get_by_role("button", name="Revoke").click()
        expect(mine.locator("#sessions")).not_to_contain_text("Firefox on Linux")
        with opened.value.expect_event("close"):
            gate.api("POST", f"collections/{collection['id']}/pause/")
        other.goto(f"{gate.base}/account/")
        expect(other).to_have_url(SIGN_IN)
        mine.reload()
        expect(mine).to_have_url(f"{gate.base}/account/")
