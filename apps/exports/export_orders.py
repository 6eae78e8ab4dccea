"""Create exports. Invalid combinations are rejected before anything is written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef

from apps.accounts.audit_log import record
from apps.accounts.models import User
from apps.exports.export_filters import FilterRefused, Filters, active_filters, resolve_filters, select_rollouts
from apps.exports.held_out_splits import MAX_SHARE, checked_splits
from apps.exports.models import Export
from apps.exports.template_checks import TemplateSettings, open_renderer
from apps.gym.chat_templates.template_sources import MAX_TEMPLATE, TemplateRefused, read_template
from apps.gym.exporters.protocol import Format, OptionRefused, Options, find_encodings, resolve_options
from apps.gym.exporters.registry import FormatUnknown, find_format
from apps.gym.exporters.rendered_messages import find_unchecked, has_conversations
from apps.gym.request_refusals import Refusal
from apps.gym.specs import Option, described
from apps.pairs.models import PairSet, PreferencePair
from apps.rollouts.models import Collection, Rollout, UnindexedRollout
from apps.rollouts.search.filters.filter_parser import parse_filter
from apps.rollouts.search.filters.query_time_limit import FilterTooSlow, limit_query_time
from apps.rollouts.steering.trace_deletion import explain_deleted_traces


class ExportRefused(Refusal, code="export-refused"):
    """Raised for an invalid combination of format, collection, pairs and filters.

    `argument` is the field to change.
    """


@dataclass(frozen=True, kw_only=True)
class ExportOrder:
    """A request for an export. Missing filters and options get the defaults of the format."""

    format: Annotated[str, Option("Format", "Export format", example="trl_sft")]
    collection: Collection = field(metadata=described("Collection", "Collection to export"))
    pair_set: Annotated[PairSet | None, Option("Pair set", "For preference pair formats")] = None
    filters: Annotated[
        dict[str, Any],
        Option(
            "Filters",
            "Which rollouts to export. If the dataset has several splits and `splits` is not given, only train.",
            example={"min_reward": 0.7, "per_task": 2},
        ),
    ] = field(default_factory=dict)
    options: Annotated[
        dict[str, Any], Option("Options", "Row options of the format", example={"reasoning": "inline"})
    ] = field(default_factory=dict)
    encoding: Annotated[str | None, Option("File type", none="default of the format")] = None
    validation_share: Annotated[
        float,
        Option(
            "Validation share",
            "Share of prompts for a validation file. All rollouts of a prompt go to the same file.",
            low=0.0,
            high=MAX_SHARE,
        ),
    ] = 0.0
    split_seed: Annotated[
        int,
        Option(
            "Random seed",
            "Seed for choosing the prompts of the validation file",
            low=-(2**63),
            high=2**63 - 1,
        ),
    ] = 0
    tokenizer: Annotated[
        str,
        Option(
            "Tokenizer to check",
            "Checks what its chat template renders. A tokenizer folder or .jinja file on the server "
            "(GYMWEB_TOKENIZERS), or a family that an installed package ships",
            length=1_000,
            example="trl/llama3_1",
        ),
    ] = ""
    template: Annotated[
        str,
        Option("Template to check", "Text of a .jinja chat template, instead of a tokenizer", length=MAX_TEMPLATE),
    ] = ""
    every_row: Annotated[
        bool,
        Option(
            "Check every row", "Renders all rows. Without it, one row of each shape, and a sample of 1 % of the rows"
        ),
    ] = False
    misfits: Annotated[
        Literal["kept", "dropped"],
        Option(
            "Rows that the template loses",
            "Rows of which the checked template loses a part, or for which it raises",
            names={"kept": "Keep, and count them", "dropped": "Leave out"},
        ),
    ] = "kept"
    mask_credentials: Annotated[
        bool,
        Option(
            "Mask credentials",
            "Mask suspected credentials in prompts and verifier fields. A rollout that has both suspected credentials "
            "and captured token IDs is left out.",
        ),
    ] = False


def queue_export(order: ExportOrder, *, user: User | None = None) -> Export:
    """Queue an export for a worker. Raise ExportRefused.

    The export stores its filters and options with defaults. It is rejected if rollouts have unresolved flags, unless
    the filter `include_flagged` is True.
    """
    export = prepare_export(order)
    export.created_by = user
    with transaction.atomic():
        export.save(force_insert=True)
        record(user=user, action="export.create", target=export, format=order.format)
    return export


def prepare_export(order: ExportOrder) -> Export:
    """Return the export as `queue_export` would store it, for previews. Raise ExportRefused."""
    collection, pair_set, filters = order.collection, order.pair_set, order.filters
    collections = [collection.pk]
    if pair_set is not None:
        collections = [pair_set.collection_id, *pair_set.further.values_list("pk", flat=True)]
    try:
        found = find_format(order.format)
        _check_pair_set(found, collection, pair_set)
        applied = resolve_filters(found, filters)
        splits = checked_splits(found, applied, collections, given="splits" in filters)
        resolved = resolve_options(found, _with_level(found, pair_set, order.options))
    except FormatUnknown as refusal:
        raise ExportRefused(str(refusal), "format") from None
    except FilterRefused as refusal:
        raise ExportRefused(str(refusal), "filters") from None
    except OptionRefused as refusal:
        raise ExportRefused(str(refusal), "options") from None
    applied = msgspec.structs.replace(applied, splits=splits)
    if found.row_kind != "tasks" and (problem := explain_deleted_traces(Collection.objects.filter(pk__in=collections))):
        raise ExportRefused(problem, "collection")
    _check_selection(applied, collections)
    if not applied.include_flagged and found.row_kind != "tasks":
        _check_flags(collection, pair_set, applied)
    if not 0.0 <= order.validation_share <= MAX_SHARE:
        raise ExportRefused(f"The validation share must be between 0 and {MAX_SHARE}.", "validation_share")
    return Export(
        format=order.format,
        collection=collection,
        pair_set=pair_set,
        filters=active_filters(found, applied),
        options={name: getattr(resolved, name) for name in found.choices},
        encoding=_checked_encoding(found, resolved, order.encoding),
        validation_share=order.validation_share,
        split_seed=order.split_seed,
        template=template_settings(found, order),
        mask_credentials=order.mask_credentials,
    )


def template_settings(format: Format, order: ExportOrder) -> dict[str, Any]:
    """Return the settings of the template check, empty without a template."""
    if not order.tokenizer and not order.template:
        if order.misfits == "dropped" or order.every_row:
            raise ExportRefused("Give a tokenizer or a template to check.", "tokenizer")
        return {}
    field = "template" if order.template else "tokenizer"
    if not has_conversations(format):
        known = find_unchecked(format, Options()) or f"{format.title} has no messages that a chat template renders."
        raise ExportRefused(f"{known} Leave it empty.", field)
    try:
        template = read_template(order.tokenizer, order.template, allowed=settings.TOKENIZERS)
        # Compile it once, so that an invalid template is refused here.
        open_renderer(template).kill()
    except TemplateRefused as refusal:
        raise ExportRefused(str(refusal), field) from None
    settled = TemplateSettings(template=template, every_row=order.every_row, misfits=order.misfits)
    return dict(msgspec.to_builtins(settled))


def _with_level(format: Format, pair_set: PairSet | None, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options, with the level of the pair set.

    Pairs of level step must be exported at that level: only the diverging turns were compared.
    """
    if pair_set is None or pair_set.level != "step" or "level" not in format.choices:
        return options
    if options.get("level", "step") != "step":
        raise OptionRefused("level", f"{pair_set.title} has pairs of level step. Leave the level empty.")
    return {**options, "level": "step"}


def _checked_encoding(format: Format, options: Options, encoding: str | None) -> str:
    encodings = find_encodings(format, options)
    if encoding is None:
        return encodings[0]
    if encoding not in encodings:
        has, what = ", ".join(encodings), " with a column of images" if options.images == "column" else ""
        raise ExportRefused(f"{format.title}{what} cannot be written as {encoding}. Choose one of: {has}.", "encoding")
    return encoding


def _check_pair_set(format: Format, collection: Collection, pair_set: PairSet | None) -> None:
    takes_pairs = format.row_kind == "preferences"
    collections = [] if pair_set is None else [pair_set.collection_id, *pair_set.further.values_list("pk", flat=True)]
    problem = ""
    if takes_pairs and pair_set is None:
        problem = f"{format.title} needs a pair set. Choose one."
    elif not takes_pairs and pair_set is not None:
        problem = f"{format.title} does not export pairs. Remove the pair set, or choose a format of preference pairs."
    elif pair_set is not None and collection.pk not in collections:
        problem = f"{pair_set} has no rollouts of {collection.label}. Choose another pair set or collection."
    elif pair_set is not None and pair_set.state != PairSet.State.READY:
        problem = f"{pair_set} is {pair_set.get_state_display()}. Only a ready pair set can be exported."
    elif pair_set is not None and not pair_set.pair_count:
        problem = f"{pair_set} has no pairs. Choose another pair set."
    if problem:
        raise ExportRefused(problem, "pair_set")


def _check_selection(filters: Filters, collections: list[int]) -> None:
    """Raise ExportRefused if the filter names rollouts of other collections, or searches unindexed text."""
    available = Rollout.objects.filter(collection__in=collections)
    named = set(filters.rollouts)
    if missing := named - set(available.filter(pk__in=named).values_list("pk", flat=True)):
        raise ExportRefused(
            f"{len(missing):,} of the {len(named):,} rollouts, e.g. #{min(missing)}, belong to other collections. "
            "Remove them from the filter, or export each collection separately.",
            "filters",
        )
    searches = parse_filter(filters.q).asks_for("text")
    if searches and UnindexedRollout.objects.filter(rollout__collection__in=collections).exists():
        raise ExportRefused(
            "The text index of this collection is not complete. Wait, or use a filter without text search.", "filters"
        )


def _check_flags(collection: Collection, pair_set: PairSet | None, filters: Filters) -> None:
    flagged = Rollout.objects.filter(collection=collection, flagged=True)
    if pair_set is not None:
        flagged = Rollout.objects.filter(flagged=True)
        pairs = PreferencePair.objects.filter(pair_set=pair_set)
        flagged = flagged.filter(
            Exists(pairs.filter(chosen=OuterRef("pk"))) | Exists(pairs.filter(rejected=OuterRef("pk")))
        )
    try:
        with limit_query_time(parse_filter(filters.q)):
            number = select_rollouts(flagged, filters).count()
    except FilterTooSlow as slow:
        raise ExportRefused(str(slow), "filters") from None
    if number:
        had = "rollout have" if number == 1 else "rollouts have"
        raise ExportRefused(
            f"The redactions in {number:,} {had} not been reviewed. Mark them as reviewed, or select “Include rollouts "
            "with redacted credentials” (include_flagged). The text stays redacted.",
            "filters",
        )
