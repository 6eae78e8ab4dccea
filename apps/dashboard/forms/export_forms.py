"""Form of an export."""

from typing import Any

from django import forms
from django.db.models import Q
from django.utils.datastructures import MultiValueDict
from django.utils.functional import cached_property

from apps.dashboard.chrome.page_request import read_number
from apps.dashboard.forms.export_fields import filter_fields, split_field
from apps.dashboard.forms.fields import bound_fields, hide_optional_label, is_any_set
from apps.dashboard.forms.spec_fields import OneRow, make_field, spec_form
from apps.exports.export_filters import filters_of, resolve_filters
from apps.exports.export_orders import ExportOrder
from apps.exports.held_out_splits import count_splits, default_splits
from apps.exports.models import Encoding
from apps.gym.chat_templates.template_sources import MAX_TEMPLATE
from apps.gym.exporters.protocol import Format, Options
from apps.gym.exporters.rendered_messages import has_conversations
from apps.gym.redaction.shortening import cut
from apps.gym.specs import spec_fields
from apps.pairs.models import PairSet
from apps.rollouts.models import Collection

_ESSENTIAL = ("min_reward", "per_task", "max_rows", "encoding")
"""Fields that are shown at once, where the format has them. The others are folded."""
_CHECK = ("tokenizer", "misfits", "every_row", "template")
_FURTHER = ("validation_share", "split_seed", "mask_credentials")


class PairSetChoice(forms.ModelChoiceField):  # type: ignore[type-arg]
    def label_from_instance(self, obj: Any) -> str:
        return f"{obj}: {obj.pair_count:,} pair{'' if obj.pair_count == 1 else 's'}"


@spec_form(ExportOrder, leave=["format", "filters", "options"])
class ExportForm(forms.Form):
    """The options and filters of one format, with the same field names as in an order."""

    collection = OneRow(Collection.objects.present(), empty_label="Choose a collection")
    pair_set = PairSetChoice(
        PairSet.objects.none(),
        required=False,
        error_messages={"invalid_choice": "This pair set does not belong to the collection."},
    )

    encoding = forms.ChoiceField(required=False, label="File type")
    template = forms.CharField(
        required=False,
        max_length=MAX_TEMPLATE,
        label="Template to check",
        help_text="Text of a .jinja chat template, instead of a tokenizer",
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
    )

    def __init__(self, data: Any = None, *, format: Format, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        self.format = format
        pair_set: Any = self.fields["pair_set"]
        has_column = "column" in format.choices.get("images", ())
        encodings = dict.fromkeys([*format.encodings, *(format.image_encodings if has_column else ())])
        choices = [(one, Encoding(one).label) for one in encodings]
        self.fields["encoding"].choices = choices  # type: ignore[attr-defined]
        for name in ("validation_share", "split_seed"):
            self.fields[name].required = False
        self._add_options()
        self._add_filters()
        self._add_splits()
        self.fields["tokenizer"].required = False
        if not has_conversations(format):
            for name in _CHECK:
                del self.fields[name]
        for name in ("pair_set", "encoding", *_CHECK, "reward_from", *format.choices):
            if name in self.fields:
                hide_optional_label(self.fields[name])
        if format.row_kind != "preferences":
            del self.fields["pair_set"]
            return
        pair_set.queryset = PairSet.objects.filter(state=PairSet.State.READY).select_related("collection")
        if self.chosen is not None:
            # Pairs of other collections would be rejected.
            either = Q(collection=self.chosen) | Q(further=self.chosen)
            pair_set.queryset = pair_set.queryset.filter(either).distinct()
            # Default as in the command: the newest pair set that has pairs.
            newest = pair_set.queryset.filter(pair_count__gt=0).order_by("-id").first()
            self.initial.setdefault("pair_set", newest.pk if newest else None)

    def _add_options(self) -> None:
        for name, values in self.format.choices.items():
            field = spec_fields(Options)[name]
            if field.choices and len(values) < 2:
                continue
            made = self.fields[name] = make_field(field)
            if isinstance(made, forms.ChoiceField):
                made.required, made.initial = False, values[0]
                made.choices = [(value, field.option.names[value]) for value in values]
                made.help_text = ". ".join(filter(None, (field.option.help, self._reasons(name))))
            else:
                made.initial = float(values[0])

    def _reasons(self, option: str) -> str:
        """Return why values that other formats have are missing here."""
        return " ".join(dict.fromkeys(reason for (name, _), reason in self.format.refused.items() if name == option))

    def _add_filters(self) -> None:
        defaults = resolve_filters(self.format, {})
        for name, field in filter_fields().items():
            if name in filters_of(self.format):
                field.initial = "" if name in {"sources", "rollouts"} else getattr(defaults, name)
                self.fields[name] = field

    def _add_splits(self) -> None:
        """Add the splits of the selected collection, if its tasks have any. The usual splits are preselected."""
        there = count_splits([self.chosen.pk]) if self.chosen is not None else {}
        if self.chosen is None or not there:
            return
        own, given = str(self.chosen.pk), self.data if self.is_bound else self.initial
        field = self.fields["splits"] = split_field(there)
        self.fields["splits_of"] = forms.CharField(required=False, widget=forms.HiddenInput)
        usual = default_splits(self.format, there, q=given.get("q") or "", rollouts=bool(given.get("rollouts")))
        if not self.is_bound and "splits" in self.initial:
            usual = [split for split in self.initial["splits"] if split in there]
        marked = list(there) if usual == [] and field.required else usual or []
        self.initial.update(splits=marked, splits_of=own)
        if self.is_bound and "splits" not in self.data and self.data.get("splits_of") != own:
            sent = MultiValueDict(self.data)
            sent.setlist("splits", marked if field.required else [", ".join(marked)])
            sent["splits_of"] = own
            self.data = sent

    def clean_rollouts(self) -> str:
        given: str = self.cleaned_data["rollouts"]
        if wrong := [word for word in _words(given) if read_number(word) is None]:
            raise forms.ValidationError(f"“{cut(wrong[0], 40)}” is not a rollout number.")
        return given

    @cached_property
    def chosen(self) -> Collection | None:
        """Return the collection of the form, submitted or not."""
        try:
            chosen: Collection | None = self.fields["collection"].clean(self["collection"].value())
        except forms.ValidationError:
            return None
        return chosen

    @property
    def has_pair_sets(self) -> bool:
        pair_set: Any = self.fields["pair_set"]
        return bool(pair_set.queryset.exists())

    @property
    def option_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if name in self.format.choices]

    essential_fields = bound_fields(_ESSENTIAL)

    @property
    def further_fields(self) -> list[forms.BoundField]:
        """Return the other filters, and the fields of the files."""
        filters = filters_of(self.format) - {"splits", *_ESSENTIAL}
        return [self[name] for name in (*(name for name in self.fields if name in filters), *_FURTHER)]

    check_fields = bound_fields(_CHECK)

    @property
    def is_check_open(self) -> bool:
        return is_any_set(self, [field.name for field in self.check_fields])

    @property
    def is_row_open(self) -> bool:
        return is_any_set(self, [field.name for field in self.option_fields])

    @property
    def is_selection_open(self) -> bool:
        return is_any_set(self, [field.name for field in self.further_fields])

    @property
    def order(self) -> ExportOrder:
        """Return the order. An empty filter means no filter, even if the format has a default."""
        given = self.cleaned_data
        filters = {name: given[name] for name in self.fields if name in filters_of(self.format)}
        filters["rollouts"] = [int(word) for word in _words(given.get("rollouts", ""))]
        if not filters.get("reward_from", True):
            del filters["reward_from"]
        options = {name: given[name] for name in self.format.choices if given.get(name) not in (None, "")}
        pair_set = given.get("pair_set")
        if pair_set is not None and pair_set.level == "step":
            # The form always sends a level; the level of the pair set applies.
            options.pop("level", None)
        return ExportOrder(
            format=self.format.slug,
            collection=given["collection"],
            pair_set=pair_set,
            filters=filters,
            options=options,
            encoding=given["encoding"] or None,
            validation_share=given["validation_share"] or 0.0,
            split_seed=given["split_seed"] or 0,
            mask_credentials=given["mask_credentials"],
            **{name: given[name] for name in _CHECK if name in self.fields},
        )


def _words(text: str) -> list[str]:
    return text.replace(",", " ").replace("#", " ").split()
