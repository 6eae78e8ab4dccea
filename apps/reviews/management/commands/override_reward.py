"""Let another reward stand for a rollout, withdraw it, or read what has stood."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.accounts.keyset_reading import read_by_key
from apps.accounts.management.people import find_person
from apps.accounts.permissions import Permission
from apps.reviews.models import RewardOverride
from apps.reviews.reviews.reward_overrides import OverrideRefused, find_standing, override_reward, withdraw_override
from apps.rollouts.models import Collection, Rollout


class Command(BaseCommand):
    help = "Give a rollout another reward than its verifier's, with a reason, or tell what has stood and why."

    def add_arguments(self, parser: CommandParser) -> None:
        of = parser.add_mutually_exclusive_group(required=True)
        of.add_argument("rollout", type=int, nargs="?", metavar="ID")
        of.add_argument(
            "--collection", type=int, metavar="ID", help="write all that has stood in it, as JSON lines, oldest first"
        )
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--reward", type=float, metavar="R", help="stands instead; the verifier's is kept")
        what.add_argument("--withdraw", action="store_true", help="the verifier's counts again")
        parser.add_argument("--reason", default="", help="why; needed with --reward")
        parser.add_argument("--by", metavar="NAME", help="who says so; needed to change something")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        changes = options["withdraw"] or options["reward"] is not None
        if options["collection"] is not None:
            if changes:
                raise CommandError("A reward is of one rollout: name it.")
            self._write(options["collection"])
            return
        present = Rollout.objects.filter(collection__is_being_deleted=False)
        rollout = present.filter(pk=options["rollout"]).first()
        if rollout is None:
            raise CommandError(f"There is no rollout {options['rollout']}.")
        if changes:
            self._change(rollout, options)
        history = [_tell(each) for each in _history().filter(rollout=rollout)]
        if options["json"]:
            told = {"rollout": rollout.pk, "verifier_reward": rollout.reward, "overrides": history}
            self.stdout.write(json.dumps(told))
            return
        self.stdout.write(f"rollout {rollout.pk}: the verifier's reward is {rollout.reward}")
        for each in history:
            end = f"{each['ended_how']} by {each['ended_by']}, {each['ended_at']}" if each["ended_at"] else "stands"
            self.stdout.write(f"{each['reward']} by {each['author']}, {each['at']}, {end}: {each['reason']}")

    def _change(self, rollout: Rollout, options: dict[str, Any]) -> None:
        author = find_person(options["by"], Permission.LEAD)
        try:
            if options["withdraw"]:
                standing = find_standing(rollout)
                if standing is None:
                    raise CommandError(f"No other reward stands for rollout {rollout.pk}.")
                withdraw_override(override=standing, user=author)
            else:
                override_reward(rollout=rollout, reward=options["reward"], reason=options["reason"], author=author)
        except OverrideRefused as refusal:
            raise CommandError(str(refusal)) from refusal

    def _write(self, collection_id: int) -> None:
        if not Collection.objects.present().filter(pk=collection_id).exists():
            raise CommandError(f"There is no collection {collection_id}.")
        for each in read_by_key(_history().filter(rollout__collection=collection_id)):
            self.stdout.write(json.dumps(_tell(each), ensure_ascii=False))


def _history() -> Any:
    return RewardOverride.objects.select_related("author", "ended_by").order_by("pk")


def _tell(override: RewardOverride) -> dict[str, Any]:
    return {
        "rollout": override.rollout_id,
        "reward": override.reward,
        "verifier_reward": override.original_reward,
        "reason": override.reason,
        "author": override.author.username if override.author else None,
        "at": override.created_at.isoformat(),
        "ended_at": override.ended_at.isoformat() if override.ended_at else None,
        "ended_by": override.ended_by.username if override.ended_by else None,
        "ended_how": override.ended_how,
    }
