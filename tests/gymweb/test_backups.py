"""Backups of the test database: which files they have, what damages them, and what restoring refuses."""

import shutil
from io import StringIO
from pathlib import Path

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.utils import timezone
from msgspec import structs

from apps.accounts.job_retries import RetriedJob
from apps.exports.export_deletion import delete_export
from apps.exports.export_jobs import write_export, write_queued_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.exports.models import Export
from apps.tasks.fenced_jobs import IN_PROGRESS
from apps.tasks.models import Upload
from gymweb.backups import backup_writing
from gymweb.backups.backup_folders import find_backup, name_part, read_folder
from gymweb.backups.backup_manifests import (
    DATABASE_FILES,
    MANIFEST,
    SECRET_KEY_FILE,
    BackupError,
    Manifest,
    digest_secret_key,
    read_manifest,
    write_manifest,
)
from gymweb.backups.backup_restoring import restore_backup, verify_backup
from gymweb.backups.backup_writing import write_backup
from tests.factories import make_collection, make_dataset, make_rollout, make_user

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def var(settings, tmp_path) -> Path:
    settings.VAR_DIR = tmp_path / "var"
    lay_out(settings)
    return settings.VAR_DIR


def lay_out(settings) -> None:
    for name in ("UPLOADS_DIR", "EXPORTS_DIR", "TRACKING_DIR"):
        setattr(settings, name, settings.VAR_DIR / name.removesuffix("_DIR").lower())
        getattr(settings, name).mkdir(parents=True)


@pytest.fixture
def backups(tmp_path) -> Path:
    return tmp_path / "backups"


def make_export() -> Export:
    collection = make_collection()
    make_rollout(collection)
    return write_export(export=queue_export(ExportOrder(format="nemo_gym_rollouts", collection=collection)))


def make_upload(var: Path, content: bytes, **fields) -> Upload:
    upload = Upload.objects.create(dataset=make_dataset(), received_bytes=len(content), **fields)
    (var / "uploads" / f"{upload.pk}.parts").write_bytes(content)
    return upload


@pytest.mark.parametrize("name", ["exports", "exports/backups", "uploads", "tracking/wandb"])
def test_a_folder_whose_files_gymweb_manages_is_refused(var, name):
    with pytest.raises(CommandError, match="Choose a folder elsewhere"):
        call_command("backup", str(var / name))
    assert [path for path in var.rglob("*") if path.parent != var] == []


def test_a_backup_has_the_files_of_rows_and_no_others(var, backups):
    export, upload = make_export(), make_upload(var, b"{}\n", state="queued")
    (var / "uploads" / "999.parts").write_bytes(b"of no row")
    (var / "uploads" / f"{upload.pk}.rejected.jsonl").write_bytes(b"{}\n")
    backup, manifest, _ = write_backup(backups)
    written = {f"exports/export-{export.pk}/{path.name}" for path in Path(export.path).iterdir()}
    assert {f"exports/export-{export.pk}/train.jsonl", f"exports/export-{export.pk}/manifest.json"} <= written
    uploads = {f"uploads/{upload.pk}.parts", f"uploads/{upload.pk}.rejected.jsonl"}
    assert set(manifest.files) == {manifest.database_file, *uploads, *written}
    assert manifest.missing == []
    assert verify_backup(backups) == (backup, manifest)
    assert manifest.files[f"exports/export-{export.pk}/train.jsonl"].sha256 == export.sha256
    assert {
        path.stat().st_mode & 0o077 for path in [backup, *backup.rglob("*")] if path.is_file() or path == backup
    } == {0}


def test_the_secret_key_is_only_included_on_request(settings, backups):
    without, _, _ = write_backup(backups)
    assert settings.SECRET_KEY not in "".join(
        path.read_text(errors="replace") for path in without.rglob("*") if path.is_file()
    )
    given, _, _ = write_backup(backups, with_secret_key=True)
    assert (given / SECRET_KEY_FILE).read_text() == settings.SECRET_KEY


def test_unchanged_files_are_linked_and_changed_ones_copied(var, backups):
    growing = make_upload(var, b"one", state="receiving")
    done = make_upload(var, b"same", state="queued")
    first, _, _ = write_backup(backups)
    (var / "uploads" / f"{growing.pk}.parts").write_bytes(b"one and two")
    Upload.objects.filter(pk=growing.pk).update(received_bytes=11)
    second, _, _ = write_backup(backups)
    full, _, _ = write_backup(backups, full=True)

    def inode(backup: Path, upload: Upload) -> int:
        return (backup / "uploads" / f"{upload.pk}.parts").stat().st_ino

    assert inode(first, done) == inode(second, done) != inode(full, done)
    assert (first / "uploads" / f"{growing.pk}.parts").read_bytes() == b"one"
    assert (second / "uploads" / f"{growing.pk}.parts").read_bytes() == b"one and two"
    for backup in (first, second, full):
        verify_backup(backup)


def change_manifest(backup: Path, **changed: object) -> Manifest:
    manifest = structs.replace(read_manifest(backup), **changed)
    (backup / MANIFEST).unlink()
    write_manifest(backup, manifest)
    return manifest


def copy_backup(backup: Path, name: str, **changed: object) -> Path:
    copy = shutil.copytree(backup, backup.with_name(name))
    change_manifest(copy, created_at=name, **changed)
    return copy


def keep(backups: Path, number: int) -> list[str]:
    told = StringIO()
    call_command("backup", str(backups), keep=number, stdout=told)
    return told.getvalue().splitlines()[1:]


def names(backups: Path) -> set[str]:
    return {path.name for path in backups.iterdir() if path.is_dir()}


def test_keep_deletes_the_oldest_backups_and_lists_them(backups):
    made = [write_backup(backups).path for _ in range(3)]
    told = keep(backups, 2)
    (newest,) = names(backups) - {made[2].name}
    assert newest > made[2].name
    assert told == [f"Deleted: {made[0].name}, {made[1].name}"]
    assert keep(backups, 2) == [f"Deleted: {made[2].name}"]
    assert keep(backups, 9) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("1-sft-export", "export"),
        ("zz-sft-export", "{}"),
        ("2020-01-01", None),
        ("2020-01-01T00-00-00.000000Z", "export"),
        ("2020-01-01T00-00-00.000000Z", None),
    ],
)
def test_keep_leaves_other_folders_alone_and_names_them(name, content, backups):
    foreign = backups / name
    foreign.mkdir(parents=True)
    if content is not None:
        written = (Path(make_export().path) / MANIFEST).read_text() if content == "export" else content
        (foreign / MANIFEST).write_text(written)
    first, second = write_backup(backups), write_backup(backups)
    deleted, *others = keep(backups, 2)
    assert deleted == f"Deleted: {first.path.name}"
    assert [line.rpartition(": ")[2] for line in others] == [name]
    assert {name, second.path.name} < names(backups)
    assert name != verify_backup(backups)[0].name


def test_keep_leaves_a_renamed_and_a_linked_backup_alone(backups, tmp_path):
    renamed = write_backup(backups).path.rename(backups / "2020-01-01T00-00-00.000000Z")
    moved = write_backup(backups).path
    moved.rename(tmp_path / "moved")
    moved.symlink_to(tmp_path / "moved")
    assert len(keep(backups, 1)) == 2
    assert {renamed.name, moved.name} < names(backups)
    assert (tmp_path / "moved" / MANIFEST).exists()


def test_two_installations_with_one_secret_key_keep_their_own_backups(settings, backups, tmp_path):
    first = [write_backup(backups).path.name for _ in range(2)]
    own = settings.VAR_DIR
    settings.VAR_DIR = tmp_path / "other"
    lay_out(settings)
    second = write_backup(backups).path.name
    (line,) = keep(backups, 2)
    assert "another installation" in line
    assert line.endswith(": " + ", ".join(first))
    (third,) = names(backups) - {*first, second}
    assert find_backup(backups).name == third
    settings.VAR_DIR = own
    assert find_backup(backups).name == first[1]
    keep(backups, 1)
    assert {second, third} == names(backups) - {find_backup(backups).name}


def test_a_new_installation_restores_the_newest_backup_of_one_installation_only(settings, backups, tmp_path):
    made = []
    for name in ("first", "second", "new"):
        made.append(write_backup(backups).path if name != "new" else None)
        settings.VAR_DIR = tmp_path / name
        lay_out(settings)
    with pytest.raises(BackupError) as refused:
        find_backup(backups)
    assert str(made[0]) in str(refused.value)
    assert str(made[1]) in str(refused.value)
    assert find_backup(made[0]) == made[0]
    shutil.rmtree(made[0])
    assert verify_backup(backups)[0] == made[1]


@pytest.mark.parametrize("changed", [{"key_digest": "0" * 64}, {"exports_folder": "/srv/exports"}, {"vendor": "other"}])
def test_keep_counts_a_backup_without_id_only_if_all_evidence_fits(changed, backups):
    """GymWeb 0.2.0 stored no installation ID."""
    own = write_backup(backups).path
    manifest = change_manifest(own, installation_id="")
    other = {"sqlite": "postgresql", "postgresql": "sqlite"}[manifest.vendor]
    if "vendor" in changed:
        changed = {"vendor": other, "files": {DATABASE_FILES[other]: manifest.files[manifest.database_file]}}
    foreign = copy_backup(own, "2020-01-01T00-00-00.000000Z")
    digest = digest_secret_key("2020-01-01T00-00-00.000000Z")
    change_manifest(foreign, **{"key_digest": digest, **changed})
    deleted, left = keep(backups, 1)
    assert deleted == f"Deleted: {own.name}"
    assert left.endswith(f": {foreign.name}")


def test_a_backup_without_id_is_restorable(backups, settings):
    old = write_backup(backups).path
    change_manifest(old, installation_id="", key_digest="0" * 64)
    assert restore_backup(backups, replace=True)[0] == old


def test_keep_never_deletes_the_backup_just_written(backups):
    future = copy_backup(write_backup(backups).path, "2999-01-01T00-00-00.000000Z")
    keep(backups, 2)
    newest = names(backups) - {future.name}
    assert len(newest) == 1
    keep(backups, 1)
    assert names(backups).isdisjoint({future.name, *newest})


def test_a_damaged_newest_backup_does_not_stop_backups(backups):
    damaged = copy_backup(write_backup(backups).path, "2999-01-01T00-00-00.000000Z")
    (damaged / MANIFEST).write_text("{")
    write_backup(backups)
    with pytest.raises(BackupError, match="manifest"):
        verify_backup(backups)


def test_a_lock_file_of_another_program_is_not_emptied(backups):
    backups.mkdir()
    (backups / ".lock").write_text("of another program")
    write_backup(backups)
    assert (backups / ".lock").read_text() == "of another program"


def test_a_file_deleted_during_the_copy_of_the_database_repeats_the_copy(var, backups, monkeypatch):
    kept, deleted = make_export(), make_export()
    copied = []

    def copy_database(target, read):
        new = make_export() if not copied else None
        result = original(target, read)
        if new:
            delete_export(export=new)
            delete_export(export=deleted)
        copied.append(new)
        return result

    original = backup_writing.copy_database
    monkeypatch.setattr(backup_writing, "copy_database", copy_database)
    _, manifest, _ = write_backup(backups)
    assert len(copied) == 2
    assert {name.split("/")[1] for name in manifest.files if name.startswith("exports/")} == {f"export-{kept.pk}"}
    assert manifest.missing == []
    verify_backup(backups)


def test_a_file_that_was_lost_before_the_backup_is_named(var, backups):
    export = make_export()
    (Path(export.path) / "train.jsonl").unlink()
    errors = StringIO()
    call_command("backup", str(backups), stdout=StringIO(), stderr=errors)
    assert f"exports/export-{export.pk}/train.jsonl" in errors.getvalue()
    assert verify_backup(backups)[1].missing == [f"exports/export-{export.pk}/train.jsonl"]


@pytest.mark.parametrize("problem", [KeyboardInterrupt, OSError("No space left on device")])
def test_a_failed_backup_leaves_the_previous_one_as_the_newest(problem, backups, monkeypatch):
    good, _, _ = write_backup(backups)

    def fail(*arguments):
        raise problem

    with monkeypatch.context() as patched:
        patched.setattr(backup_writing, "write_manifest", fail)
        with pytest.raises((KeyboardInterrupt, OSError)):
            write_backup(backups)
    assert [path.name for path in backups.iterdir() if path.is_dir()] == [good.name]


def test_a_killed_backup_is_no_backup_and_the_next_one_removes_it(backups):
    _, manifest, _ = write_backup(backups)
    killed = backups / name_part("2030-01-01T00-00-00.000000Z")
    killed.mkdir()
    write_manifest(killed, manifest)
    assert killed not in read_folder(backups).own
    with pytest.raises(BackupError, match="database"):
        verify_backup(killed)
    write_backup(backups)
    assert not killed.exists()


@pytest.mark.parametrize("name", [".2030-01-01T00-00-00.000000Z.part", f".2030-01-01T00-00-00.000000Z.{'0' * 32}.part"])
def test_an_unfinished_backup_of_another_installation_is_named(name, backups):
    (backups / name).mkdir(parents=True)
    assert keep(backups, 1) == [f"Not deleted, unfinished backup: {name}"]


def test_an_unfinished_export_beside_the_backups_is_kept(backups):
    (backups / ".sft.3-1.part").mkdir(parents=True)
    assert keep(backups, 1) == []
    assert (backups / ".sft.3-1.part").is_dir()


def test_two_backups_into_one_folder_do_not_run_at_once(backups):
    backups.mkdir()
    with backup_writing._lock(backups), pytest.raises(BackupError, match="running"):
        write_backup(backups)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("kind", ["database", "uploads"])
@pytest.mark.parametrize("harm", [damage, Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])])
def test_verifying_finds_a_damaged_file(kind, harm, var, backups):
    make_upload(var, b"{}\n" * 100, state="queued")
    backup, manifest, _ = write_backup(backups)
    name = next(name for name in manifest.files if name.startswith(kind))
    harm(backup / name)
    with pytest.raises(CommandError, match=name):
        call_command("verify_backup", str(backups))
    with pytest.raises(BackupError, match=name):
        restore_backup(backups, replace=True)


def test_verifying_finds_a_damaged_manifest(backups):
    backup, _, _ = write_backup(backups)
    text = (backup / "manifest.json").read_bytes()
    (backup / "manifest.json").write_bytes(text[: len(text) // 2])
    with pytest.raises(BackupError, match="manifest"):
        verify_backup(backup)
    with pytest.raises(CommandError, match="no complete backup"):
        call_command("verify_backup", str(backups / "nothing"))


def test_a_manifest_cannot_name_a_path_outside_the_backup(backups):
    backup, manifest, _ = write_backup(backups)
    manifest.files["uploads/../../secret_key"] = manifest.files[manifest.database_file]
    (backup / "manifest.json").unlink()
    write_manifest(backup, manifest)
    with pytest.raises(BackupError, match="outside"):
        read_manifest(backup)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"migrations": [("rollouts", "9999_of_a_newer_version")]}, "9999_of_a_newer_version"),
        ({"migrations": [("rollouts", "0001_initial")]}, "0002_figure_blocks"),
        ({"manifest_version": 2}, "another format"),
    ],
)
def test_restoring_a_backup_of_an_unsuitable_version_is_refused(changed, told, backups):
    change_manifest(write_backup(backups).path, **changed)
    with pytest.raises(BackupError, match=told):
        restore_backup(backups, replace=True)


def test_restoring_into_an_installation_with_data_is_refused(var, backups):
    user = make_user()
    make_upload(var, b"kept", state="queued")
    write_backup(backups)
    with pytest.raises(CommandError, match="--replace"):
        call_command("restore", str(backups))
    user.refresh_from_db()
    assert [path.read_bytes() for path in (var / "uploads").iterdir()] == [b"kept"]


def test_an_export_in_progress_is_written_right_after_restoring(backups):
    ready = make_export()
    Export.objects.filter(pk=ready.pk).update(state=Export.State.WRITING, path="", touched_at=timezone.now())
    write_queued_export()
    assert Export.objects.get().state == Export.State.WRITING, "its worker is presumed alive"
    write_backup(backups, keep=1)
    restore_backup(backups, replace=True)
    write_queued_export()
    assert Export.objects.get().state == Export.State.READY


def test_the_states_in_which_a_job_has_a_worker_are_known():
    waiting = {"queued", "receiving", "draft", "checked", "ready", "rejected", "done", "applied", "unsupported", "sent"}
    jobs = [model for model in apps.get_models() if issubclass(model, RetriedJob)]
    states = {value for job in jobs for value, _ in job._meta.get_field("state").choices or ()}
    assert states - IN_PROGRESS == {*waiting, "cancelled", "failed"}
    assert states > IN_PROGRESS
