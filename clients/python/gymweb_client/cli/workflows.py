"""Commands that send more than one operation: sign in, show a trace, re-verify, recheck, build and decide pairs."""

import getpass
import os
import sys
from typing import Annotated, Any

from typer import Argument, Option

from gymweb_client.cli import connection
from gymweb_client.cli.calls import Call, Failed
from gymweb_client.cli.connection import WrongUsage
from gymweb_client.cli.fields import load_operations
from gymweb_client.cli.transcripts import describe_events
from gymweb_client.synchronous import GymWeb

_MOST_IDS = 50


def login(call: Call) -> None:
    """Check an API key against the server and store both as a profile. The key is read from the terminal, from
    standard input, or from GYMWEB_KEY."""
    name = call.profile or "default"
    stored = {one["profile"]: one["url"] for one in connection.list_profiles()}
    url = connection.check_url(call.url or os.environ.get("GYMWEB_URL") or stored.get(name) or connection.LOCAL_URL)
    key = connection.environment_key() or _ask_key(url)
    with GymWeb(url, key) as gym:
        me = gym.request("GET", "me/")
    path = connection.store_profile(name, url, key)
    call.out.say(f"Signed in to {url} as {me['username']} ({me['role']}). Profile {name} is stored in {path}.")


def logout(call: Call) -> None:
    """Delete a stored profile. The API key stays valid until it is revoked on the account page."""
    name = call.profile or "default"
    if not connection.remove_profile(name):
        raise Failed(f"Unknown profile {name}.")
    call.out.say(f"Profile {name} is deleted.")


def profiles(
    call: Call, default: Annotated[str, Option("--default", help="Make this profile the default.")] = ""
) -> None:
    """List the stored profiles."""
    if default:
        connection.choose_default(default)
    call.out.rows(connection.list_profiles(), ["profile", "url", "default"])


def whoami(call: Call) -> None:
    """Show whose key is used, with its role, scopes and permissions."""
    call.out.one(call.gym.request("GET", "me/"))


def show(call: Call) -> None:
    """Print the trace of a rollout: prompt, messages, calls and verdicts."""
    trace = call.send(load_operations()["rollouts_trace_retrieve"])
    if call.out.as_json:
        call.out.one(trace)
    else:
        call.out.text(describe_events(trace["events"]))


def reverify(call: Call, apply: Annotated[bool, Option("--apply", help="Apply the new rewards.")] = False) -> None:
    """Re-verify stored rollouts without calling a policy model, and show what would change."""
    queued = call.send(load_operations()["reverifications_create"])
    path = f"reverifications/{queued['id']}/"
    done = _wait_for(call, path, {"ready"})
    if apply:
        call.gym.request("POST", f"{path}apply/")
        done = _wait_for(call, path, {"applied"})
    elif done["changed"]:
        call.out.say("Nothing is changed yet. Use --apply.")
    call.out.one({**done, **call.gym.request("GET", f"{path}comparison/")})


def recheck(
    call: Call,
    collections: Annotated[list[int], Argument(metavar="COLLECTION…")],
    apply: Annotated[bool, Option("--apply", help="Write the changes to the rollouts.")] = False,
) -> None:
    """Derive stored rollouts again with the current rules, and list every rollout that would change."""
    done = []
    for collection in collections:
        queued = call.gym.request("POST", "rechecks/", {"collection": collection})
        path = f"rechecks/{queued['id']}/"
        checked = _wait_for(call, path, {"ready", "applied"})
        if apply and checked["state"] == "ready":
            call.gym.request("POST", f"{path}apply/")
            checked = _wait_for(call, path, {"applied"})
        if not call.out.as_json:
            call.out.rows(call.gym.pages(f"{path}changes/"), ["rollout", "kind", "old", "new", "fate"])
            _say_affected(call, path)
        done.append(checked)
    if any(one["state"] == "ready" for one in done):
        call.out.say("Nothing is changed yet. Use --apply.")
    columns = ["id", "collection", "state", "checked", "outcomes", "untrainable", "counts", "applied", "skipped"]
    call.out.rows(done, [*columns, "exports"])


def _say_affected(call: Call, path: str) -> None:
    """Print the ids of everything that used a rollout with another outcome."""
    for name in ("pairs", "exports", "reviews", "overrides"):
        ids = [str(row["id"]) for row in call.gym.pages(f"{path}{name}/")]
        if ids:
            more = f" and {len(ids) - _MOST_IDS:,} more" if len(ids) > _MOST_IDS else ""
            call.out.say(f"{name.capitalize()} of changed rollouts: {', '.join(ids[:_MOST_IDS])}{more}")


def _wait_for(call: Call, path: str, ends: set[str]) -> dict[str, Any]:
    with call.out.progress(path) as advance:

        def show(row: Any) -> None:
            done = next((row[name] for name in ("verified", "considered", "checked") if name in row), 0)
            advance(done, row["total"], "")

        row: dict[str, Any] = call.gym.settle(path, {*ends, "failed", "cancelled"}, None, 0.5, show)
    if row["state"] not in ends:
        raise Failed(f"{path} is {row['state']}: {row['message']}")
    return row


def build_pairs(call: Call, collections: Annotated[list[int], Argument(metavar="COLLECTION…")]) -> None:
    """Build preference pairs of one or more collections."""
    body = {**call.body, "collection": collections[0], "further": collections[1:]}
    made = call.gym.request("POST", "pair-sets/", body, **call.key)
    call.out.one(_wait_for(call, f"pair-sets/{made['id']}/", {"ready"}))


def decide_pairs(
    call: Call,
    all_pairs: Annotated[bool, Option("--all", help="All pairs of --pair-set.")] = False,
    below_margin: Annotated[float | None, Option(help="Pairs from rewards with a smaller margin.")] = None,
) -> None:
    """Accept pairs, reject them or reset them to `proposed`: the given pairs, or pairs of a set that match filters."""
    chosen = call.body.pop("pairs", [])
    filters = dict(call.query)
    has_filter = all_pairs or below_margin is not None or len(filters) > 1
    if bool(chosen) == bool(filters) or ("pair_set" in filters) != has_filter:
        raise WrongUsage("Give pairs, or --pair-set with --all, --below-margin or another filter.")
    # Read all pairs first: decided pairs may no longer match the filter.
    found = chosen or [
        pair["id"]
        for pair in call.gym.pages("pairs/", **filters)
        if below_margin is None or (pair["margin"] is not None and pair["margin"] < below_margin)
    ]
    changed = 0
    for first in range(0, len(found), 1000):
        part = {**call.body, "pairs": found[first : first + 1000]}
        changed += call.gym.request("POST", "pairs/decide/", part)["changed"]
    call.out.one({"found": len(found), "changed": changed})


def _ask_key(url: str) -> str:
    return (getpass.getpass(f"API key for {url}: ") if sys.stdin.isatty() else sys.stdin.readline()).strip()
