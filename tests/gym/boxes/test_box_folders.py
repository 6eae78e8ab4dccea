import os

import pytest

from apps.gym.boxes import box_folders
from apps.gym.boxes.box_folders import BoxFolders, measure_folder, read_file


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(box_folders.tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path


def test_only_folders_of_the_killed_process_are_removed(place):
    running, killed = BoxFolders(), BoxFolders()
    made = killed.make("work")
    (made / "work" / "file").write_text("left over")
    os.close(killed._lock)  # as the kernel does
    (place / "gymweb-boxes-link").symlink_to(running.path)
    later = BoxFolders()
    assert not killed.path.exists()
    assert running.path.exists()
    for folders in (running, later):
        folders.close()
    assert [entry.name for entry in place.iterdir()] == ["gymweb-boxes-link"]


def test_links_pipes_and_paths_outside_are_not_read(place):
    (place / "secret").write_text("secret")
    folder = place / "work"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").write_text("content")
    (folder / "link").symlink_to(place / "secret")
    (folder / "folder").symlink_to(place)
    os.mkfifo(folder / "pipe")
    assert read_file(folder, "inner/file", 4) == b"cont"
    for path in ("link", "folder/secret", "pipe", "../secret", str(place / "secret"), "inner", "nothing"):
        assert read_file(folder, path, 100) is None


def test_a_folder_that_its_owner_cannot_read_is_removed(place):
    folders = BoxFolders()
    made = folders.make("work")
    (made / "work" / "a" / "b").mkdir(parents=True)
    (made / "work" / "a").chmod(0)
    box_folders.remove_folder(made)
    assert not made.exists()
    folders.close()


def test_the_size_counts_every_file_and_no_link(place):
    (place / "a").mkdir()
    (place / "a" / "large").write_bytes(b"x" * 100_000)
    (place / "link").symlink_to("/usr")
    assert 100_000 <= measure_folder(place) < 200_000
