"""The whole workflow in Python: upload tasks, collect rollouts, look at results, build pairs, export, and stream for
RL.

Run it cell by cell or as a script. GYMWEB_URL and GYMWEB_KEY are the server and your API key, MODEL a policy model.
Without MODEL, a scripted model is created, which needs no endpoint.
"""

# %% A client. `GymWeb` works in notebooks too; `AsyncGymWeb` has the same methods as coroutines.
import os
import tempfile
from pathlib import Path

from gymweb_client import GymWeb

gym = GymWeb()
model = os.environ.get("MODEL", "")
if not model:
    model = "scripted"
    if model not in {known["slug"] for known in gym.pages("policy-models/")}:
        fields = {"slug": model, "name": "Scripted", "provider": "scripted", "mistake_rate": 0.5}
        gym.request("POST", "policy-models/", fields)
folder = Path(tempfile.mkdtemp(prefix="walk-"))

# %% Tasks: NeMo Gym rows, or a file in any supported format.
tasks = [
    {
        "id": f"sum-{number}",
        "responses_create_params": {"input": f"What is {number} + {number}? Answer with the number alone."},
        "expected_answer": str(2 * number),
    }
    for number in range(1, 7)
]
upload = gym.upload("walk", tasks, environment="exact_match")
print(f"uploaded {upload['accepted']} tasks as version {upload['version']} of {upload['dataset']}")

# %% A collection: every task eight times.
collection = gym.plan("walk", model, repeats=8, name="The walk")
collection = gym.wait(collection["id"], seconds=300, look=0.2)
print(f"collection {collection['id']}: {collection['state']}, {collection['completed']} of {collection['total']}")

# %% Results.
metrics = gym.metrics(collection["id"])
print("mean reward", metrics["mean_reward"])
best = max(gym.rollouts(collection=collection["id"], rewarded=True), key=lambda rollout: rollout["reward"])
print("the best rollout is", best["id"], [event["kind"] for event in gym.trace(best["id"])])

# %% Preference pairs: the best with the worst rollout of each task.
pair_set = gym.build_pairs(collection["id"], margin=0.5)
pairs = list(gym.pairs(pair_set["id"]))
print(f"{len(pairs)} pairs", pair_set["counts"])

# %% Files for trainers, checked against their SHA-256.
for kind in ("trl_sft", "trl_dpo", "nemo_gym_rollouts"):
    export = gym.export(kind, collection["id"], pair_set=pair_set["id"] if kind == "trl_dpo" else None)
    path = gym.download(export, folder / f"{kind}.jsonl")
    rows = path.read_text(encoding="utf-8").splitlines()
    print(f"{path.name}: {len(rows)} rows, {export['bytes']} bytes, {export['sha256'][:12]}")

# %% Online: what a trainer does at each step. A group arrives when its last rollout has ended.
with gym.stream(rows=tasks[:2], environment="exact_match", policy_model=model, repeats=4, group=True) as stream:
    for group in stream:
        print("group", group["task"], [rollout["reward"] for rollout in group["rollouts"]])
print("the stream ended:", stream.end["reason"], stream.end["completed"])

gym.close()
