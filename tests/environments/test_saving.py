import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from apps.accounts.models import AuditEntry
from apps.environments.environment_changes import save_environment
from apps.environments.models import Environment
from apps.environments.resource_servers import connect_environment
from apps.gym.calls import lookups
from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.environments.registry import BUILTINS
from apps.gym.errors import EnvironmentFault
from apps.policies.models import Health
from apps.policies.policy_model_changes import KeyRequired
from apps.policies.row_checks import RowDeleted
from tests.factories import make_environment, make_policy_model, make_user

pytestmark = pytest.mark.django_db
OUTBOUND = Outbound(OutboundPolicy())


def http_environment(**fields):
    return Environment(
        **{"slug": "lab", "name": "Lab", "adapter": "http", "base_url": "https://lab.example.org", **fields}
    )


def test_the_built_in_environments_exist_after_migrating():
    rows = Environment.objects.order_by("slug").values_list("slug", "adapter", "builtin", "base_url", "verifies")
    assert list(rows) == [
        ("calculator", "builtin", "calculator", "", True),
        ("exact_match", "builtin", "exact_match", "", True),
    ]


def test_a_resource_server_is_saved_and_the_log_says_who_did_it():
    user = make_user()
    saved = save_environment(environment=http_environment(base_url=" https://lab.example.org/v2/ "), user=user)
    assert Environment.objects.get(pk=saved.pk).base_url == "https://lab.example.org/v2"
    save_environment(environment=saved, user=user)
    entries = AuditEntry.objects.filter(target="lab").order_by("id").values_list("user", "action")
    assert list(entries) == [(user.pk, "environment.create"), (user.pk, "environment.change")]


def test_a_private_address_is_refused_with_the_setting_that_would_allow_it(settings):
    settings.OUTBOUND_ALLOW = []
    with pytest.raises(ValidationError) as caught:
        save_environment(environment=http_environment(base_url="http://127.0.0.1:8101"), user=None)
    (message,) = caught.value.message_dict["base_url"]
    assert "127.0.0.1:8101" in message
    assert "GYMWEB_OUTBOUND_ALLOW" in message
    assert not Environment.objects.filter(slug="lab").exists()


def test_a_private_address_is_saved_where_the_operator_allows_it(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1:8101"]
    saved = save_environment(environment=http_environment(base_url="http://127.0.0.1:8101"), user=None)
    assert saved.pk


@pytest.mark.parametrize(
    "base_url",
    [
        "ftp://lab.example.org",
        "https://user:word@lab.example.org",
        "lab",
        "https://lab.example.org/?key=1",
        "http://[x",
        "https://lab.example\n.org",
        "https://lab example.org",
        "https://lab.example.org/\x7f",
    ],
)
def test_an_invalid_server_address_is_refused_at_its_field(base_url):
    with pytest.raises(ValidationError) as caught:
        save_environment(environment=http_environment(base_url=base_url), user=None)
    assert list(caught.value.message_dict) == ["base_url"]


def test_an_unknown_built_in_is_refused_with_the_names_there_are():
    with pytest.raises(ValidationError) as caught:
        save_environment(environment=http_environment(adapter="builtin", builtin="chess"), user=None)
    [message] = caught.value.message_dict["builtin"]
    assert ", ".join(sorted(BUILTINS)) in message


@pytest.mark.parametrize("adapter", ["builtin", "http"])
def test_an_environment_without_a_server_is_refused(adapter):
    with pytest.raises(ValidationError, match="Choose a built-in environment or a command, or give the"):
        save_environment(environment=http_environment(adapter=adapter, builtin="", base_url=""), user=None)


def test_the_other_adapters_field_is_emptied():
    builtin = save_environment(environment=http_environment(adapter="builtin", builtin="calculator"), user=None)
    assert (builtin.builtin, builtin.base_url) == ("calculator", "")
    http = save_environment(environment=http_environment(slug="lab2", builtin="calculator"), user=None)
    assert (http.builtin, http.base_url) == ("", "https://lab.example.org")


def test_another_server_forgets_the_last_health_check():
    environment = make_environment(
        adapter="http",
        base_url="https://lab.example.org",
        builtin="",
        health=Health.HEALTHY,
        health_message="reachable",
        health_checked_at=timezone.now(),
    )
    environment.name = "Renamed"
    assert save_environment(environment=environment, user=None).health == Health.HEALTHY
    environment.base_url = "https://other.example.org"
    saved = save_environment(environment=environment, user=None)
    assert (saved.health, saved.health_message, saved.health_checked_at) == (Health.UNKNOWN, "", None)


def test_an_environment_that_was_deleted_meanwhile_is_not_created_again():
    environment = make_environment()
    Environment.objects.filter(pk=environment.pk).delete()
    with pytest.raises(RowDeleted, match="was deleted in the meantime"):
        save_environment(environment=environment, user=None)
    assert not Environment.objects.filter(slug=environment.slug).exists()


def test_a_key_is_kept_encrypted_and_goes_to_the_address_that_it_was_entered_for():
    saved = save_environment(environment=http_environment(), api_key="sesame-open-1234", user=None)
    assert ("sesame" in saved.api_key_encrypted, saved.api_key_hint) == (False, "…1234")
    assert connect_environment(saved, OUTBOUND).caller.headers == {"Authorization": "Bearer sesame-open-1234"}
    kept = save_environment(environment=saved, user=None)
    assert kept.api_key_hint == "…1234"
    kept.base_url = "https://elsewhere.example.org"
    with pytest.raises(KeyRequired):
        save_environment(environment=kept, user=None)
    moved = save_environment(environment=kept, api_key="another", user=None)
    assert connect_environment(moved, OUTBOUND).caller.headers == {"Authorization": "Bearer another"}
    bare = save_environment(environment=moved, api_key="", user=None)
    assert (bare.api_key_encrypted, connect_environment(bare, OUTBOUND).caller.headers) == ("", {})


def test_a_key_is_forgotten_when_there_is_no_address_any_more(settings):
    settings.MCP_COMMANDS = {"files": {"command": ["mcp-files"], "environment": {}}}
    saved = save_environment(environment=http_environment(adapter="mcp"), api_key="sesame-open-1234", user=None)
    saved.adapter, saved.command, saved.concurrency = "mcp_process", "files", 4
    assert save_environment(environment=saved, user=None).api_key_encrypted == ""


def test_a_key_that_cannot_be_read_is_a_fault_that_says_so():
    saved = save_environment(environment=http_environment(), api_key="sesame-open-1234", user=None)
    saved.api_key_encrypted = "damaged"
    with pytest.raises(EnvironmentFault, match="lab: The stored API key cannot be decrypted"):
        connect_environment(saved, OUTBOUND)


def mcp_environment(**fields):
    return Environment(
        **{"slug": "lab", "name": "Lab", "adapter": "mcp_process", "command": "files", "concurrency": 4, **fields}
    )


def test_an_mcp_server_as_a_process_is_one_that_the_operator_named(settings):
    settings.MCP_COMMANDS = {"files": {"command": ["mcp-files"], "environment": {}}}
    saved = save_environment(environment=mcp_environment(base_url="https://left.example.org"), user=None)
    saved.refresh_from_db()
    assert (saved.command, saved.base_url, saved.server) == ("files", "", "files")
    with pytest.raises(ValidationError) as caught:
        save_environment(environment=mcp_environment(slug="shell", command="bash"), user=None)
    [message] = caught.value.message_dict["command"]
    assert "GYMWEB_MCP_COMMANDS defines: files" in message


def test_a_process_for_each_attempt_bounds_how_many_run_at_once(settings):
    settings.MCP_COMMANDS, settings.MCP_PROCESSES = {"files": {"command": ["mcp-files"], "environment": {}}}, 8
    with pytest.raises(ValidationError) as caught:
        save_environment(environment=mcp_environment(concurrency=9), user=None)
    [message] = caught.value.message_dict["concurrency"]
    assert "maximum is 8 (GYMWEB_MCP_PROCESSES)" in message


def test_without_a_number_of_its_own_a_process_environment_gets_the_most_that_may_be(settings):
    settings.MCP_COMMANDS, settings.MCP_PROCESSES = {"files": {"command": ["mcp-files"], "environment": {}}}, 8
    usual = Environment(slug="lab", name="Lab", adapter="mcp_process", command="files")
    assert save_environment(environment=usual, user=None).concurrency == 8


def test_a_command_is_forgotten_when_another_adapter_is_chosen(settings):
    settings.MCP_COMMANDS = {"files": {"command": ["mcp-files"], "environment": {}}}
    saved = save_environment(environment=mcp_environment(), user=None)
    saved.adapter, saved.base_url = "mcp", "https://lab.example.org/mcp"
    assert save_environment(environment=saved, user=None).command == ""


def test_the_guard_holds_for_mcp_over_http_too(settings):
    settings.OUTBOUND_ALLOW = []
    with pytest.raises(ValidationError, match="GYMWEB_OUTBOUND_ALLOW"):
        save_environment(environment=http_environment(adapter="mcp", base_url="http://10.0.0.1/mcp"), user=None)


def test_a_judge_of_a_worker_group_wants_an_environment_of_that_group():
    judge = make_policy_model(worker_group="gpu")
    given = {"slug": "essays", "name": "Essays", "adapter": "builtin", "builtin": "judged", "judge_model": judge}
    with pytest.raises(ValidationError) as caught:
        save_environment(environment=Environment(**given), user=None)
    assert list(caught.value.message_dict) == ["judge_model"]
    assert "group gpu" in caught.value.message_dict["judge_model"][0]
    assert save_environment(environment=Environment(**given, worker_group="gpu"), user=None).judge_model == judge


def test_a_name_that_resolves_to_a_private_address_is_refused_on_saving(monkeypatch):
    monkeypatch.setattr(lookups, "look_up", lambda host, port: ["169.254.10.10"])
    with pytest.raises(ValidationError) as refused:
        save_environment(environment=http_environment(base_url="http://inner.example:9000"), user=None)
    [message] = refused.value.message_dict["base_url"]
    assert "add inner.example:9000 to GYMWEB_OUTBOUND_ALLOW" in message
