"""Write the dataset card (README.md), with the column types, so that `datasets` need not infer them."""

from collections.abc import Mapping
from typing import Any

import yaml

from apps.exports.exported_credentials import warn_of_credentials
from apps.exports.models import Encoding
from apps.gym.exporters.load_snippets import write_snippet
from apps.gym.exporters.protocol import Feature, Format, Options
from apps.gym.trainability import label_reason

_SIZES = [(1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M")]
_FILES = ["| file | split | rows | bytes | SHA-256 |", "|---|---|---|---|---|"]


def write_card(format: Format, options: Options, manifest: Mapping[str, Any]) -> str:
    """Return the card for `load_dataset("<folder>")`. JSON columns need datasets 4.7 or later."""
    files = [{"split": one["split"], "path": one["name"]} for one in manifest["files"]]
    head: dict[str, Any] = {"configs": [{"config_name": "default", "data_files": files}]} if files else {}
    features = manifest.get("columns") or _features_of(format, options, manifest)
    if features:
        head["dataset_info"] = {"features": [_feature(name, kind) for name, kind in features.items()]}
    head["size_categories"] = [next((name for most, name in _SIZES if manifest["rows"] < most), "n>1M")]
    front = yaml.safe_dump(head, sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n{_body(format, manifest)}"


def _features_of(format: Format, options: Options, manifest: Mapping[str, Any]) -> dict[str, Feature]:
    dates: list[str] = [] if manifest["encoding"] == Encoding.PARQUET else manifest.get("date_columns", [])
    return {name: "json" if name in dates else kind for name, kind in format.features(options).items()}


def _feature(name: str, kind: Feature) -> dict[str, Any]:
    if kind == "turn[]":
        return {"name": name, "list": [{"name": "from", "dtype": "string"}, {"name": "value", "dtype": "string"}]}
    return {"name": name, "list": kind.removesuffix("[]")} if kind.endswith("[]") else {"name": name, "dtype": kind}


def _body(format: Format, manifest: Mapping[str, Any]) -> str:
    source, counts = manifest["source"], manifest["counts"]
    model = source["policy_model"]
    dropped = "\n".join(f"- {number:,} {label_reason(reason)}" for reason, number in counts["dropped"].items())
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
            *(_FILES if files else ["No rows, so there is no file."]),
            *([files] if files else []),
            *_unsplit(manifest),
            *_mixed(manifest),
            "",
            *_load(format, manifest),
            "## Source of the rows",
            "",
            f"Collection {source['collection']['id']} of the dataset `{source['dataset']}` in the environment "
            f"`{source['environment']}`, attempted by `{model['model_name'] or model['slug']}`.",
            f"Checked {counts['considered']:,}, of which {counts['written_from']:,} were written"
            + (". Left out:" if dropped else "."),
            *(["", dropped] if dropped else []),
            *(["", _rewards(manifest["rewards"])] if "rewards" in manifest else []),
            *(["", _tools(manifest["tools"])] if "tools" in manifest else []),
            *_dataset_splits(manifest),
            "",
            f"Filters: `{manifest['filters'] or 'none'}`. Options: `{manifest['options'] or 'none'}`. Splits are "
            "by prompt, so equal prompts are in one file. Credentials in replies and tool results were redacted before "
            "storing.",
            *_credentials(manifest),
            "",
            f"Written by GymWeb {manifest['gymweb_version']} on {manifest['created_at']}; see `manifest.json`.",
            "",
        ]
    )


def _load(format: Format, manifest: Mapping[str, Any]) -> list[str]:
    if not manifest["files"]:
        return []
    files = {one["split"]: one["name"] for one in manifest["files"]}
    # `datasets` refuses "." as the name of a folder.
    language, code = write_snippet(format.slug, files, folder="path/to/this/folder")
    return ["## Load", "", f"```{language}\n{code}```", ""]


def _credentials(manifest: Mapping[str, Any]) -> list[str]:
    warning = warn_of_credentials(manifest["credentials"])
    return ["", warning] if warning else []


def _tools(counts: Mapping[str, int]) -> str:
    sentence = f"The model had tools in attempts at {counts['offered']:,} tasks, from the task or the environment"
    if counts["differing"]:
        sentence += f" (if attempts differ, those of the first attempt: {counts['differing']:,} tasks)"
    if counts["unknown"]:
        sentence += f"; {counts['unknown']:,} tasks without attempts have no tools"
    return f"{sentence}."


def _rewards(counts: Mapping[str, Any]) -> str:
    if counts["from"] == "verifier":
        return "Rewards are from the verifier; overrides are ignored."
    return (
        f"Rewards are overrides where reviewers set them ({counts['set_by_people']:,} of these "
        "rows), otherwise from the verifier."
    )


def _dataset_splits(manifest: Mapping[str, Any]) -> list[str]:
    """Return the number of rows by dataset split of their tasks, whatever file they are in."""
    counts = manifest.get("dataset_splits", {})
    parts = (f"{rows:,} of `{split}`" if split else f"{rows:,} without a split" for split, rows in counts.items())
    return ["", f"Rows by dataset split of their task: {', '.join(parts)}."] if counts else []


def _mixed(manifest: Mapping[str, Any]) -> list[str]:
    names = ", ".join(f"`{name}`" for name in manifest.get("mixed_columns", []))
    sentence = (
        f"Some values of {names} are texts, others are not. `datasets` decodes such texts as JSON: it loads the text "
        "`007` as the number 7. To get exact values, read each line with `json.loads`."
    )
    return ["", sentence] if names else []


def _unsplit(manifest: Mapping[str, Any]) -> list[str]:
    share = manifest["split"]["validation_share"]
    if not share or len(manifest["files"]) > 1 or not manifest["rows"]:
        return []
    return [
        "",
        f"All rows are in one file: there are too few prompts for a validation share of {share}.",
    ]
