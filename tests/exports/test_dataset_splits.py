"""What a dataset holds out goes into no file for training unasked, and rows are counted by the split of their task."""

from pathlib import Path

import pytest

from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, ExportRefused, prepare_export, queue_export
from apps.exports.models import Export
from apps.pairs.pair_sets import PairOrder, build_pairs
from tests.dashboard.pages import signed_in
from tests.exports.test_selecting import rows_of
from tests.factories import make_collection, make_dataset, make_rollout, make_row, make_trace

pytestmark = pytest.mark.django_db
CREATE = "/exports/new/"


@pytest.fixture(autouse=True)
def exports_folder(settings, tmp_path):
    settings.EXPORTS_DIR = tmp_path / "exports"


def attempted(*splits):
    """A task of each of these splits, with a good and a bad attempt."""
    made = make_collection(dataset=make_dataset([make_row(f"{n} + 2?") for n in range(len(splits))]), state="completed")
    for task, split in zip(made.version.tasks.order_by("index"), splits, strict=True):
        made.version.tasks.filter(pk=task.pk).update(split=split)
        for answer, reward in (("4", 1.0), ("5", 0.0)):
            make_rollout(made, task=task, reward=reward, trace=make_trace(answer, reward))
    return made


def places(format, collection, **order):
    written = write_export(export=queue_export(ExportOrder(format=format, collection=collection, **order)))
    return [row["task_index"] for row in rows_of(written)], written


@pytest.mark.parametrize("format", ["trl_sft", "trl_kto", "trl_grpo", "trl_dpo"])
def test_of_a_dataset_with_splits_train_alone_is_taken_unless_others_are_named(format):
    made = attempted("train", "validation", "train", "")
    pairs = {"pair_set": build_pairs(PairOrder(collection=made))} if format == "trl_dpo" else {}
    taken, written = places(format, made, **pairs)
    assert set(taken) == {0, 2}
    assert (written.filters["splits"], written.manifest["filters"]["splits"]) == (["train"], ["train"])
    assert written.manifest["dataset_splits"] == {"train": written.rows}
    left = 4 if format in {"trl_sft", "trl_kto"} else 2
    assert written.manifest["counts"]["dropped"]["other_split"] == left
    card = (Path(written.path) / "README.md").read_text()
    assert f"{written.rows} of `train`" in card
    assert set(places(format, made, filters={"splits": ["validation", ""]}, **pairs)[0]) == {1, 3}
    everything, written = places(format, made, filters={"splits": []}, **pairs)
    assert (set(everything), list(written.manifest["dataset_splits"])) == ({0, 1, 2, 3}, ["", "train", "validation"])


def test_rows_that_are_kept_and_verified_again_are_of_every_split():
    made = attempted("train", "validation")
    written = write_export(export=queue_export(ExportOrder(format="nemo_gym_rollouts", collection=made)))
    assert (written.filters.get("splits", []), written.manifest["dataset_splits"]) == (
        [],
        {"train": 2, "validation": 2},
    )


@pytest.mark.parametrize(
    ("splits", "filters", "taken"),
    [
        (("", ""), {}, [0, 1]),
        (("validation", "validation"), {}, [0, 1]),
        (("easy", "train"), {"q": "split:easy"}, [0]),
        (("easy", "hard"), {"q": "split:easy,hard"}, [0, 1]),
    ],
)
def test_where_there_is_nothing_to_choose_or_it_is_chosen_otherwise_no_split_is_left_out(splits, filters, taken):
    assert places("trl_sft", attempted(*splits), filters=filters)[0] == taken


def test_rollouts_that_are_named_are_taken_whatever_their_split():
    made = attempted("train", "validation")
    named = list(made.rollouts.filter(reward=1.0).values_list("pk", flat=True))
    assert places("trl_sft", made, filters={"rollouts": named})[0] == [0, 1]


@pytest.mark.parametrize(
    ("splits", "filters", "says"),
    [
        (
            ("train", "validation", ""),
            {"splits": ["trian"]},
            r"no task has the split trian: the tasks have no split \(1\), train",
        ),
        (("", ""), {"splits": ["train"]}, "no task has the split train: the tasks have no splits"),
        (("easy", "hard", "hard"), {}, r"called train: hard \(2\), easy \(1\)"),
    ],
)
def test_an_unknown_split_is_refused_with_the_known_ones(splits, filters, says):
    with pytest.raises(ExportRefused, match=says):
        prepare_export(ExportOrder(format="trl_sft", collection=attempted(*splits), filters=filters))


def test_a_pair_set_over_collections_may_take_the_splits_of_each():
    first, second = attempted("train", "train"), attempted("validation", "test")
    pair_set = build_pairs(PairOrder(collection=first, further=[second]))
    order = {"format": "trl_dpo", "collection": second, "pair_set": pair_set}
    assert prepare_export(ExportOrder(**order)).filters["splits"] == ["train"]
    assert prepare_export(ExportOrder(**order, filters={"splits": ["test"]})).filters["splits"] == ["test"]


def boxes(page):
    """The splits that are offered, and whether each is marked."""
    found = [part.split(">")[0] for part in page.split('name="splits" value="')[1:]]
    return {part.split('"')[0]: "checked" in part for part in found}


def test_the_form_offers_the_splits_with_their_tasks_and_marks_train():
    made = attempted("train", "validation", "train")
    client = signed_in()
    page = client.get(CREATE, {"format": "trl_sft", "collection": made.pk}).text
    assert boxes(page) == {"train": True, "validation": False}
    assert ("train · 2 tasks" in page, "validation · 1 task" in page) == (True, True)
    marked = client.get(CREATE, {"format": "trl_sft", "collection": made.pk, "q": "split:validation"}).text
    assert boxes(marked) == {"train": True, "validation": True}
    assert boxes(client.get(CREATE, {"format": "trl_sft", "collection": attempted("", "").pk}).text) == {}
    several = client.get(CREATE, {"format": "trl_sft", "collection": attempted("easy", "hard").pk}).text
    assert boxes(several) == {"easy": False, "hard": False}


@pytest.mark.parametrize(
    ("sent", "taken"),
    [
        ({}, ["train"]),
        ({"splits": ["validation"]}, ["validation"]),
        ({"splits": ["train", "validation"], "splits_of": "{own}"}, ["train", "validation"]),
        ({"splits_of": "another"}, ["train"]),
    ],
)
def test_the_form_writes_the_marked_splits_and_train_where_they_were_not_shown(sent, taken):
    made = attempted("train", "validation")
    sent = {name: str(made.pk) if value == "{own}" else value for name, value in sent.items()}
    signed_in().post(CREATE, {"format": "trl_sft", "collection": made.pk, **sent})
    assert Export.objects.get().filters["splits"] == taken


def test_a_form_without_any_mark_and_one_with_a_foreign_split_are_refused():
    made = attempted("train", "validation")
    order = {"format": "trl_sft", "collection": made.pk, "splits_of": made.pk}
    client = signed_in()
    for sent, says in (({}, "Choose the splits to export."), ({"splits": "nosuch"}, "has no tasks of split nosuch.")):
        page = client.post(CREATE, {**order, **sent})
        assert (page.status_code, says in page.text) == (422, True)
    assert Export.objects.count() == 0
