"""Check that the tests find small bugs: apply each to a copy of the working tree and run the tests that must fail.

Prints one JSON object for each bug and fails if the tests of one pass. Takes some minutes. `mutations.py reviews pairs`
runs the bugs of these areas only.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAILED = 1
"""Exit status of pytest and Node if tests ran and some failed. Other statuses mean that the tests could not run."""


@dataclass(frozen=True)
class Mutation:
    """A bug: `old`, which occurs once in the file, is replaced by `new`. `tests`, a file or one test, must fail."""

    area: str
    path: str
    old: str
    new: str
    tests: str


MUTATIONS = [
    Mutation(
        "engine",
        "apps/rollouts/engine/claiming.py",
        "                suspects -= len(taken)\n",
        "",
        "tests/rollouts/test_narrowing.py",
    ),
    Mutation(
        "engine",
        "apps/rollouts/engine/claiming.py",
        "attempt = attempt + 1, started_at",
        "attempt = attempt, started_at",
        "tests/rollouts/test_claiming.py",
    ),
    Mutation(
        "leases",
        "apps/rollouts/engine/worker_leases.py",
        "[*STATES_WITH_LEASE], losses=1",
        "[*STATES_WITH_LEASE], losses=0",
        "tests/rollouts/test_narrowing.py",
    ),
    Mutation(
        "leases",
        "apps/rollouts/engine/worker_leases.py",
        "list(unknown & unknown_before)",
        "list(unknown)",
        "tests/rollouts/test_heartbeats.py",
    ),
    Mutation(
        "limits",
        "apps/rollouts/engine/collection_limits.py",
        'F("input_tokens") + F("output_tokens") + F("judge_tokens")',
        'F("input_tokens") + F("output_tokens")',
        "tests/rollouts/test_limiting.py",
    ),
    Mutation(
        "limits",
        "apps/rollouts/engine/collection_limits.py",
        "return max(1, room)",
        "return room",
        "tests/rollouts/test_limiting.py",
    ),
    Mutation(
        "limits",
        "apps/accounts/request_limits.py",
        "if counted.number > limit else 0.0",
        "if counted.number >= limit else 0.0",
        "tests/api/test_rates.py",
    ),
    Mutation(
        "recording",
        "apps/rollouts/engine/recording.py",
        "        AND rollouts_rollout.attempt = v.attempt AND rollouts_rollout.status = 'running'",
        "        AND rollouts_rollout.status = 'running'",
        "tests/rollouts/test_recording.py",
    ),
    Mutation(
        "recording",
        "apps/rollouts/engine/recording.py",
        "CASE WHEN v.status = 'queued' THEN NULL ELSE {now} END",
        "{now}",
        "tests/rollouts/test_recording.py",
    ),
    Mutation(
        "exporters",
        "apps/gym/exporters/openai.py",
        "True if parallel is None else bool(parallel)",
        "bool(parallel)",
        "tests/gym/exporters/test_formats.py::test_parallel_calls_are_allowed_unless_the_task_says_otherwise",
    ),
    Mutation(
        "exporters",
        "apps/gym/exporters/trl.py",
        "if captured < replies:",
        "if captured > replies:",
        "tests/gym/exporters/test_formats.py::test_half_of_the_tokens_of_an_attempt_are_no_demonstration_and_counted_where_all_is_kept",
    ),
    Mutation(
        "exporters",
        "apps/gym/exporters/trl.py",
        '"label": attempt.reward >= options.good_from',
        '"label": attempt.reward > options.good_from',
        "tests/gym/exporters/test_formats.py::test_a_reward_of_the_threshold_is_labelled_good",
    ),
    Mutation(
        "pairs",
        "apps/gym/pairs/pair_rule.py",
        "include_flagged=rule.include_redacted,",
        "include_flagged=True,",
        "tests/gym/test_pairs.py::test_every_attempt_that_is_left_out_has_its_reason",
    ),
    Mutation(
        "pairs",
        "apps/gym/pairs/transitive_preferences.py",
        " if winner not in reached.get(loser, ())",
        "",
        "tests/gym/test_pairs.py::test_where_people_contradict_themselves_their_verdicts_say_no_more_than_they_say",
    ),
    Mutation(
        "metrics",
        "apps/gym/metrics/pass_at_k.py",
        "max(0, size - solved - drawn) / (size - drawn)",
        "max(0, size - solved - drawn) / size",
        "tests/gym/test_metrics.py",
    ),
    Mutation(
        "metrics",
        "apps/gym/metrics/majority_at_k.py",
        "+= scores / winners * math.comb(silent, rest)",
        "+= scores * math.comb(silent, rest)",
        "tests/gym/test_voting.py",
    ),
    Mutation(
        "metrics",
        "apps/gym/metrics/pass_at_k.py",
        "/ (size - 1)) if size > 1",
        "/ size) if size > 1",
        "tests/gym/test_metrics.py",
    ),
    Mutation(
        "reviews",
        "apps/reviews/queues/item_leases.py",
        'taken__lt=F("queue__overlap")',
        'taken__lte=F("queue__overlap")',
        "tests/reviews/test_leasing.py",
    ),
    Mutation(
        "reviews",
        "apps/reviews/queues/item_leases.py",
        "expired.update(status=Review.Status.LAPSED, slot=None)",
        "expired.update(status=Review.Status.LAPSED)",
        "tests/reviews/test_leasing.py",
    ),
    Mutation(
        "reviews",
        "apps/reviews/queues/side_order.py",
        "MOST_APART - apart",
        "MOST_APART + apart",
        "tests/reviews/test_leasing.py",
    ),
    Mutation(
        "permissions",
        "apps/accounts/permissions.py",
        "Permission.READ_QUEUES, Permission.REVIEW}",
        "Permission.READ_QUEUES, Permission.REVIEW, Permission.READ}",
        "tests/access/test_every_route.py::test_annotators_read_nothing_but_their_own_work",
    ),
    Mutation(
        "permissions",
        "apps/accounts/permissions.py",
        "frozenset({Permission.OWN_ACCOUNT, Permission.ACCOUNTS})",
        "frozenset({Permission.ACCOUNTS})",
        "tests/accounts/test_keys.py",
    ),
    Mutation(
        "wires",
        "apps/gym/wires/messages_reply.py",
        '("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")',
        '("input_tokens", "cache_read_input_tokens")',
        "tests/gym/policy/test_messages_reply.py",
    ),
    Mutation(
        "wires",
        "apps/gym/wires/chat_deltas.py",
        "        if delta.kind != self._last.kind or delta.number != self._last.number:\n",
        "        if delta.kind != self._last.kind:\n",
        "tests/gym/policy/test_any_reply.py::test_arguments_of_parallel_calls_are_passed_on_apart",
    ),
    Mutation(
        "verifiers",
        "apps/gym/verifiers/math/numeric.py",
        "return abs(answer - expected) <= tolerance",
        "return abs(answer - expected) < tolerance",
        "tests/gym/verifiers/test_numeric.py",
    ),
    Mutation(
        "verifiers",
        "apps/gym/verifiers/text/multiple_choice.py",
        "return found[0] if len(found) == 1 else None",
        "return found[0] if found else None",
        "tests/gym/verifiers/test_multiple_choice.py",
    ),
    Mutation(
        "search",
        "apps/rollouts/search/filters/filter_sql.py",
        "'gt' if above else 'gte'",
        "'gte' if above else 'gt'",
        "tests/rollouts/filtering/test_searching.py",
    ),
    Mutation(
        "search",
        "apps/rollouts/search/keyset_pages.py",
        "found += part[: size + 1 - len(found)]",
        "found += part[: size - len(found)]",
        "tests/dashboard/test_rollout_table.py",
    ),
    Mutation(
        "backups",
        "gymweb/backups/backup_manifests.py",
        'and ".." not in path.parts',
        "",
        "tests/gymweb/test_backups.py",
    ),
    Mutation(
        "uploads",
        "apps/tasks/received_files.py",
        " and file.read(len(part)) == part:",
        ":",
        "tests/tasks/test_uploading.py",
    ),
    Mutation(
        "scripts",
        "static/js/drafts.js",
        "  if (mark(local.draft) === mark(draft)) forget(review);\n  else keep(review, local.draft);",
        "  forget(review);",
        "frontend/tests/drafts.test.js",
    ),
    Mutation(
        "scripts",
        "static/js/follow.js",
        "    if (has.attempt !== had.attempt) leaveAttempt();\n",
        "",
        "frontend/tests/follow.test.js",
    ),
]


def copy_working_tree(target: Path) -> None:
    """Copy the tracked and new files, and link what Git ignores and the tests need."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    modules = ROOT / "frontend" / "node_modules"
    if modules.exists():
        (target / "frontend" / "node_modules").symlink_to(modules)


def run_tests(root: Path, paths: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Run test files of one kind until one fails, and return the result."""
    names = list(paths)
    if names[0].endswith(".js"):
        command = ["node", "--experimental-vm-modules", "--no-warnings", "--test", *names]
    else:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *names]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def find_outdated(mutations: Iterable[Mutation]) -> list[str]:
    """Return the paths and texts of bugs that do not fit the code any more."""
    return [f"{one.path}: {one.old}" for one in mutations if (ROOT / one.path).read_text().count(one.old) != 1]


def try_mutation(root: Path, one: Mutation) -> bool:
    """Return True if the tests find the bug. Exit if they cannot run."""
    path = root / one.path
    before = path.read_text()
    path.write_text(before.replace(one.old, one.new))
    began = time.monotonic()
    done = run_tests(root, [one.tests])
    path.write_text(before)
    if done.returncode not in {0, FAILED}:
        sys.exit(f"{one.tests} cannot run with the bug in {one.path}:\n{(done.stdout + done.stderr)[-3000:]}")
    is_found = done.returncode == FAILED
    result = {"area": one.area, "path": one.path, "old": one.old.strip(), "new": one.new.strip(), "tests": one.tests}
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({**result, "found": is_found, "seconds": seconds}), flush=True)
    return is_found


def main() -> None:
    areas = sorted({one.area for one in MUTATIONS})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("areas", nargs="*", metavar="AREA", help=f"run only these areas: {', '.join(areas)}")
    chosen = parser.parse_args().areas
    if unknown := sorted(set(chosen) - set(areas)):
        parser.error(f"Unknown area {unknown[0]!r}. Choose from: {', '.join(areas)}.")
    mutations = [one for one in MUTATIONS if not chosen or one.area in chosen]
    if outdated := find_outdated(mutations):
        sys.exit("\n".join(["These texts do not occur once in their files. Change the mutations:", *outdated]))
    with tempfile.TemporaryDirectory(prefix="gymweb-mutations-") as folder:
        root = Path(folder)
        copy_working_tree(root)
        # Without a bug all of them pass; otherwise a failure would prove nothing.
        for suffix in (".py", ".js"):
            names = sorted({one.tests for one in mutations if one.tests.endswith(suffix)})
            if names and (done := run_tests(root, names)).returncode:
                sys.exit(f"Tests fail without a bug:\n{(done.stdout + done.stderr)[-3000:]}")
        survivors = [one for one in mutations if not try_mutation(root, one)]
    print(json.dumps({"bugs": len(mutations), "survivors": [f"{one.path}: {one.old.strip()}" for one in survivors]}))
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
