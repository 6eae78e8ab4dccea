"""Which tools a key lists and may call, by the role of its owner and its scopes."""

import pytest

from apps.accounts.models import AuditEntry, Role, Scope
from apps.api.mcp_server.tool_server import TOOLS
from apps.reviews.models import Comment, Flag
from apps.rollouts.models import Collection, Rollout
from tests.factories import make_collection, make_rollout, make_user
from tests.mcp_server.calls import ask, call, client_of, refused, send, tool_names

pytestmark = pytest.mark.django_db

ANNOTATING, RUNNING = {"add_comment", "flag_rollout"}, {"estimate_collection", "start_collection"}
READING = set(TOOLS) - ANNOTATING - RUNNING


GROUPS = {"read": READING, "annotate": ANNOTATING, "run": RUNNING, "task": {"read_task", "list_datasets"}}


@pytest.mark.parametrize(
    ("role", "scopes", "groups"),
    [
        ("engineer", "rollouts:read", "read"),
        ("engineer", "annotate", "read annotate"),
        ("engineer", "rollouts:run", "read run"),
        ("engineer", "admin", "read annotate run"),
        ("engineer", "tasks:write", "task"),
        ("engineer", "export", "read"),
        ("admin", "admin", "read annotate run"),
        ("viewer", "admin", "read"),
        ("viewer", "annotate rollouts:run", "read"),
    ],
)
def test_a_key_lists_the_tools_of_its_scopes_and_role(role, scopes, groups):
    names = set().union(*(GROUPS[group] for group in groups.split()))
    assert tool_names(client_of(make_user(role), *scopes.split())) == names


def test_only_writing_tools_need_a_scope_beyond_reading():
    assert {tool.name for tool in TOOLS.values() if tool.writes} == ANNOTATING | {"start_collection"}
    for tool in TOOLS.values():
        if not tool.writes and tool.name not in RUNNING:
            assert {operation.method for operation in tool.operations} == {"get"}, tool.name


@pytest.mark.parametrize("scope", ["admin", "annotate", "rollouts:read"])
@pytest.mark.parametrize("method", ["initialize", "tools/list", "tools/call"])
def test_reviewers_of_blind_queues_cannot_connect(scope, method):
    """Tools would show rewards, models and expected answers."""
    rollout = make_rollout(make_collection())
    client = client_of(make_user(Role.ANNOTATOR), scope)
    response = send(client, method, {"name": "read_rollout", "arguments": {"rollout": rollout.pk}})
    assert (response.status_code, response.json()["type"]) == (403, "urn:gymweb:problem:permission-denied")


@pytest.mark.parametrize("name", sorted(ANNOTATING | RUNNING))
def test_a_reading_key_is_told_which_scope_writing_needs(name):
    rollout = make_rollout(make_collection())
    client = client_of(make_user(Role.ENGINEER), Scope.ROLLOUTS_READ)
    scope = Scope.ANNOTATE if name in ANNOTATING else Scope.ROLLOUTS_RUN
    assert scope in refused(client, name, rollout=rollout.pk, text="x", kind="other")
    assert (Comment.objects.count(), Flag.objects.count(), Collection.objects.count()) == (0, 0, 1)


def test_the_instructions_name_the_tools_that_a_key_lacks():
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    told = ask(client_of(make_user(Role.ENGINEER), Scope.ROLLOUTS_READ), "initialize", opening)["instructions"]
    assert "start_collection" in told and Scope.ANNOTATE in told
    assert "start_collection" not in ask(client_of(make_user(), Scope.ADMIN), "initialize", opening)["instructions"]
    uploading = ask(client_of(make_user(), Scope.TASKS_WRITE), "initialize", opening)["instructions"]
    assert "cannot read rollouts" in uploading


def test_comments_and_flags_are_audited_with_the_key():
    user = make_user(Role.ENGINEER)
    rollout: Rollout = make_rollout(make_collection())
    client = client_of(user, Scope.ANNOTATE)
    call(client, "add_comment", rollout=rollout.pk, text="The tool added", seq=3)
    call(client, "flag_rollout", rollout=rollout.pk, kind="wrong_tool", note="adds")
    comment, flag = Comment.objects.get(), Flag.objects.get()
    assert (comment.author, comment.seq, flag.author, flag.kind) == (user, 3, user, "wrong_tool")
    entries = AuditEntry.objects.filter(noun__in=["comment", "flag"])
    assert {(entry.user, entry.api_key.name, entry.origin) for entry in entries} == {(user, "agent", "api")}
    assert entries.count() == 2


def test_reading_writes_no_audit_entry():
    rollout = make_rollout(make_collection())
    client = client_of(make_user(), Scope.ROLLOUTS_READ)
    before = AuditEntry.objects.count()
    call(client, "read_trace", rollout=rollout.pk)
    assert AuditEntry.objects.count() == before
