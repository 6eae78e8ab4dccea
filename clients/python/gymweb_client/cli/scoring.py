"""The command `gymweb models check-logprobs`: compare captured log probabilities with other scores of the same ids."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from gymweb_client.cli.calls import Call, Failed
from gymweb_client.cli.fields import load_operations

_OPERATION = "policy_models_check_logprobs_create"


def check_logprobs(
    call: Call,
    folder: Annotated[Path | None, Option("--folder", help="Score with this model folder, on this machine.")] = None,
    dtype: Annotated[str, Option("--dtype", help="Data type of the local model.")] = "float32",
) -> None:
    """Score captured ids again and compare their log probabilities with the captured ones.

    The server of the model scores them, which needs vLLM. With --folder, a local model does, which needs torch and
    transformers.
    """
    if folder is not None:
        call.body["scores"] = _score_rollouts(call, _load_scorer(folder, dtype))
        call.body["compared_with"] = f"{folder.name}, {dtype}"
    found = call.send(load_operations()[_OPERATION])
    if call.out.as_json:
        call.out.one(found)
        return
    figures = found.pop("figures")
    call.out.one({**found, "ratio_mean": figures["ratio_mean"], "ratio_outside": figures["ratio_outside"]})
    rows = [{"of": name, **figures[name], **figures[name]["above"]} for name in ("every", "uncertain")]
    call.out.rows(rows, ["of", "tokens", "largest", "p99", "mean", *figures["every"]["above"]])


def _score_rollouts(call: Call, score: Callable[[list[int]], list[float]]) -> list[dict[str, Any]]:
    model = call.gym.request("GET", call.address(load_operations()["policy_models_retrieve"]))
    filters = {"model_version": model["version"], "q": f"model:{model['slug']} sampled:>0", "ordering": "-id"}
    if "collection" in call.body:
        filters["collection"] = call.body["collection"]
    most = call.body.get("rollouts", 32)
    scores: list[dict[str, Any]] = []
    for rollout in call.gym.pages("rollouts/", **filters):
        tokens = call.gym.request("GET", f"rollouts/{rollout['id']}/tokens/")
        for number, segment in enumerate(tokens["segments"]):
            logprobs = score(segment["input_ids"])
            scores.append({"rollout": rollout["id"], "segment": number, "logprobs": logprobs})
        most -= 1
        if not most:
            break
    if not scores:
        raise Failed(f"The model {model['slug']} has no rollouts with captured tokens of its current version.")
    return scores


def _load_scorer(folder: Path, dtype: str) -> Callable[[list[int]], list[float]]:
    """Return a function that gives the logprob of each id after those before it, 0 for the first."""
    try:
        import torch
        from transformers import AutoModelForCausalLM
    except ImportError as missing:
        raise Failed(f"--folder needs torch and transformers: {missing}") from None
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise Failed(f"Unknown data type {dtype}. Choose float32, bfloat16 or float16.")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=kind, local_files_only=True).to(device).eval()
    except (OSError, ValueError) as problem:
        raise Failed(f"{folder} cannot be loaded: {problem}") from None

    def score(ids: list[int]) -> list[float]:
        given = torch.tensor([ids], device=device)
        with torch.inference_mode():
            logits = model(given).logits[0, :-1].float()
        chosen = torch.log_softmax(logits, dim=-1).gather(1, given[0, 1:, None])[:, 0]
        return [0.0, *chosen.tolist()]

    return score
