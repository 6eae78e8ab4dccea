"""The word check: what it counts, and that limits only fall."""

import json
import subprocess

from scripts import check_words


def repository(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".py").write_text(text)
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    subprocess.run(["git", "add", "."], cwd=folder, check=True)
    return folder


def test_odd_words_are_counted_per_package_and_1000_lines(tmp_path):
    odd = "# Nobody knows what is behind those that stay.\n" + "x = 1\n" * 99
    root = repository(tmp_path, apps__tasks__models=odd, apps__rollouts__models="x = 1\n", gymweb__urls="y = 2\n")
    assert check_words.measure(root) == {"apps/rollouts": 0.0, "apps/tasks": 30.0, "gymweb": 0.0}


def test_files_that_git_does_not_know_are_not_counted(tmp_path):
    root = repository(tmp_path, apps__tasks__models="x = 1\n")
    (root / "apps" / "tasks" / "notes.md").write_text("Nobody\n")
    assert check_words.measure(root) == {"apps/tasks": 0.0}


def test_a_package_above_its_limit_is_named_and_a_new_one_has_a_low_limit():
    found = check_words.find_excess({"docs": 3.1, "gymweb": 2.0, "new": 5.1}, {"docs": 3.0, "gymweb": 2.0})
    assert found == ["docs: 3.1 odd words per 1,000 lines, limit 3.0", "new: 5.1 odd words per 1,000 lines, limit 5.0"]


def test_writing_limits_lowers_them_and_raises_none(tmp_path, monkeypatch):
    limits = tmp_path / "limits.json"
    limits.write_text(json.dumps({"docs": 3.0, "gymweb": 2.0}))
    monkeypatch.setattr(check_words, "LIMITS_PATH", limits)
    monkeypatch.setattr(check_words, "measure", lambda root: {"docs": 1.0, "gymweb": 9.0, "new": 4.0})
    monkeypatch.setattr("sys.argv", ["check_words.py", "--write"])
    check_words.main()
    assert json.loads(limits.read_text()) == {"docs": 1.0, "gymweb": 2.0, "new": 4.0}
