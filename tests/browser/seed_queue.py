"""Pairs, rankings and rollouts to judge, and who judges them: prints the numbers of queues and collection as JSON."""

import json

import django

django.setup()

from apps.accounts.models import Role  # noqa: E402
from apps.gym.traces.events import ModelCall, Prompt, SessionOpened, ToolResult, Verification  # noqa: E402
from apps.gym.traces.items import message  # noqa: E402
from apps.reviews.agreement.queue_agreement import read_disputed  # noqa: E402
from apps.reviews.models import Queue, Rubric  # noqa: E402
from apps.reviews.queues.queue_changes import close_queue, create_queue  # noqa: E402
from apps.reviews.queues.queue_items import fill_from_rollouts  # noqa: E402
from tests.browser.conftest import PASSWORD  # noqa: E402
from tests.factories import make_collection, make_dataset, make_rollout, make_row, make_user  # noqa: E402
from tests.reviews.queues import CRITERIA, judge, make_queue  # noqa: E402

PAIRS = 20


def trace(number: int, repeat: int):
    call = {
        "type": "function_call",
        "call_id": "c",
        "name": "calculator",
        "arguments": f'{{"expression": "{number}+{repeat}"}}',
    }
    said = [{"type": "output_text", "text": f"I checked it: the sum is {number + 2 * repeat}.", "annotations": []}]
    reply = {"type": "message", "role": "assistant", "status": "completed", "content": said}
    return [
        SessionOpened(environment="calculator"),
        Prompt(items=[message("system", "Use the calculator."), message("user", f"What is {number} + 2?")]),
        ModelCall(seen=2, items=[call], model="secret-model", finish_reason="tool_calls"),
        ToolResult(call_id="c", name="calculator", output=str(number + repeat)),
        ModelCall(seen=4, items=[reply], model="secret-model", finish_reason="stop"),
        Verification(reward=float(repeat == 1), explanation="compared with 4", stop_reason="answered"),
    ]


def main() -> None:
    people = {}
    for name in ("ann", "ben"):
        person = people[name] = make_user(Role.ANNOTATOR, username=name)
        person.set_password(PASSWORD)
        person.save()
    dataset = make_dataset([make_row(f"What is {n} + 2?", str(n + 2)) for n in range(PAIRS)], slug="to-judge")
    collection = make_collection(dataset=dataset, name="To judge", state="completed")
    rollouts = [
        make_rollout(collection, task=task, reward=float(repeat == 1), trace=trace(task.index, repeat)).pk
        for task in collection.version.tasks.order_by("index")
        for repeat in range(2)
    ]
    rubric = Rubric.objects.create(slug="to-judge", name="Is it good?", criteria=CRITERIA)
    queues = {"collection": collection.pk}
    for name, kind, ids in (
        ("pairwise", "pairwise", rollouts),
        ("rubric", "rubric", rollouts[:6]),
        ("ranking", "ranking", rollouts[:6]),
        ("few", "pairwise", rollouts[:6]),
        ("phone", "pairwise", rollouts[:10]),
        ("quick pass", "pairwise", rollouts[:24]),
        # For test_keys.py, which may run after another file has emptied the others.
        *((f"keys: {kind}", kind, rollouts[:2]) for kind in ("pairwise", "rubric", "ranking")),
    ):
        queue = Queue(name=f"To judge: {name}", kind=kind, seed=5, rubric=rubric if kind == "rubric" else None)
        queue.instructions = "Choose what you would *rather* have been told."
        items = fill_from_rollouts(ids, kind=kind, seed=5, size=2)
        queues[name] = create_queue(queue=queue, items=items, user=None).pk
    queues["same"] = make_queue(pairs=3, name="Attempts with the same steps").pk
    queues["keys: same"] = make_queue(pairs=1, name="Keys of attempts with the same steps").pk
    queue = Queue(name="Disputed", kind="pairwise", seed=5, overlap=2)
    items = fill_from_rollouts(rollouts[6:10], kind="pairwise", seed=5)
    disputed = create_queue(queue=queue, items=items, reviewers=people.values(), user=None)
    for person, choice in zip(people.values(), ("a", "both_bad"), strict=True):
        for _ in items:
            judge(disputed, person, choice)
    close_queue(queue=disputed, user=people["ann"])
    queues |= {"disputed": disputed.pk, "disputes": [each.pk for each in read_disputed(disputed)]}
    print(json.dumps(queues))


if __name__ == "__main__":
    main()
