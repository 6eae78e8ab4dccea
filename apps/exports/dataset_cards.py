"""The dataset card: README.md with the types of every column, so that `datasets` infers none, and what the rows are."""

from collections.abc import Mapping
from typing import Any

import yaml

from apps.gym.exporters.protocol import Feature, Format, Options

_SIZES = [(1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M")]
_FILES = ["| file | split | rows | bytes | SHA-256 |", "|---|---|---|---|---|"]


def write_card(format: Format, options: Options, manifest: Mapping[str, Any]) -> str:
    """`load_dataset("<folder>")` reads it (datasets 4.7 and later for columns of JSON)."""
    files = [{"split": one["split"], "path": one["name"]} for one in manifest["files"]]
    head: dict[str, Any] = {"configs": [{"config_name": "default", "data_files": files}]} if files else {}
    features = format.features(options)
    if features:
        head["dataset_info"] = {"features": [_feature(name, kind) for name, kind in features.items()]}
    head["size_categories"] = [next((name for most, name in _SIZES if manifest["rows"] < most), "n>1M")]
    front = yaml.safe_dump(head, sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n{_body(format, manifest)}"


def _feature(name: str, kind: Feature) -> dict[str, str]:
    return {"name": name, "list": kind.removesuffix("[]")} if kind.endswith("[]") else {"name": name, "dtype": kind}


def _body(format: Format, manifest: Mapping[str, Any]) -> str:
    source, counts = manifest["source"], manifest["counts"]
    dropped = "\n".join(f"- {number:,} {reason.replace('_', ' ')}" for reason, number in counts["dropped"].items())
    files = "\n".join(
        f"| `{one['name']}` | {one['split']} | {one['rows']:,} | {one['bytes']:,} | `{one['sha256']}` |"
        for one in manifest["files"]
    )
    return "\n".join(
        [
            f"# {format.title}",
            "",
            format.note,
            "",
            *(_FILES if files else ["No row was left, so there is no file."]),
            *([files] if files else []),
            *_unsplit(manifest),
            "",
            "## Where the rows come from",
            "",
            f"Collection {source['collection']['id']} of the dataset `{source['dataset']}` in the environment "
            f"`{source['environment']}`, attempted by `{_model(source['policy_model'])}`.",
            f"Of {counts['considered']:,} looked at, {counts['written_from']:,} were written"
            + (", the others left out:" if dropped else "."),
            *(["", dropped] if dropped else []),
            *(["", _rewards(manifest["rewards"])] if "rewards" in manifest else []),
            *(["", _tools(manifest["tools"])] if "tools" in manifest else []),
            *_dataset_splits(manifest),
            "",
            f"Filters: `{manifest['filters'] or 'none'}`. Options: `{manifest['options'] or 'none'}`. Splits are by "
            "prompt: what shows a model the same stands in one file. Credentials were taken out before anything was "
            "stored, as far as they were recognised.",
            "",
            f"Written by GymWeb {manifest['gymweb_version']} on {manifest['created_at']}; `manifest.json` has it all.",
            "",
        ]
    )


def _model(said: Mapping[str, str]) -> str:
    """By its own name; the scripted one has none but ours."""
    return said["model_name"] or said["slug"]


def _tools(said: Mapping[str, int]) -> str:
    told = f"Attempts at {said['offered']:,} of the tasks were offered tools, by the task or by its environment"
    if said["differing"]:
        told += f" (not the same ones in {said['differing']:,}: those of the first attempt count)"
    if said["unknown"]:
        told += f"; of {said['unknown']:,} nobody knows, since no attempt at them began: they go without tools"
    return f"{told}."


def _rewards(said: Mapping[str, Any]) -> str:
    if said["from"] == "verifier":
        return "Rewards are the verifier's, whatever people set."
    return (
        f"Rewards are those that people set where they did ({said['set_by_people']:,} of those behind these rows), "
        "else the verifier's."
    )


def _dataset_splits(manifest: Mapping[str, Any]) -> list[str]:
    """What a trainer must not see of the dataset is no matter of the files' names."""
    counts = manifest.get("dataset_splits", {})
    told = (f"{rows:,} of `{split}`" if split else f"{rows:,} of none" for split, rows in counts.items())
    return ["", f"Rows by the split that their task is of in the dataset: {', '.join(told)}."] if counts else []


def _unsplit(manifest: Mapping[str, Any]) -> list[str]:
    share = manifest["split"]["validation_share"]
    if not share or len(manifest["files"]) > 1 or not manifest["rows"]:
        return []
    return [
        "",
        f"All rows are on one side: of so few prompts none came to the other with a validation share of {share}.",
    ]
