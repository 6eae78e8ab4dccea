"""Find a writable control group, in folders that imitate the kernel's."""

import os

import pytest

from apps.gym.sandbox import memory_groups
from apps.gym.sandbox.choosing import Choice, ChosenSandbox
from apps.gym.sandbox.control_groups import NotDelegated, Place, find_place
from apps.gym.sandbox.memory_groups import MemoryGroup
from tests.gym.sandbox.needing import needs_sandbox

OTHERS = "22 1 0:20 / /proc rw shared:5 - proc proc rw\nshort line\n"


def mount(point, *, version, root="/"):
    kind = "cgroup cgroup rw,memory,hugetlb" if version == 1 else "cgroup2 cgroup2 rw,nsdelegate"
    return f"{OTHERS}31 22 0:27 {root} {str(point).replace(' ', chr(92) + '040')} rw,nosuid shared:9 - {kind}\n"


def fill(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("_", ".", 1)).write_text(content)
    return folder


def unit(top, **more):
    """A unit's group that is left to it, with the worker in a group below."""
    above = fill(top / "gym.service", cgroup_procs="", cgroup_controllers="memory pids\n", cgroup_subtree_control="")
    own = fill(above / "worker", cgroup_controllers="memory pids\n", cgroup_subtree_control="", memory_max="max\n")
    return above, fill(own, **more)


def where(told, mounts):
    return find_place(groups=told, mounts=mounts)


def why_not(told, mounts):
    with pytest.raises(NotDelegated) as refused:
        where(told, mounts)
    return str(refused.value)


V1 = "5:cpu:/else\n4:hugetlb,memory:{}\n0::/unified\n"
V2 = "0::{}\n"


def test_version_1_has_it_below_the_own_group(tmp_path):
    own = fill(tmp_path / "workers" / "one", memory_use_hierarchy="1\n")
    assert where(V1.format("/workers/one"), mount(tmp_path, version=1)) == Place(folder=own, version=1)


def test_a_container_sees_its_own_group_as_the_uppermost(tmp_path):
    own = fill(tmp_path / "memory of all")
    seen = mount(own, version=1, root="/docker/abc")
    assert where(V1.format("/docker/abc"), seen) == Place(folder=own, version=1)
    assert why_not(V1.format("/docker/other"), seen).startswith("the group /docker/other of this process is not below")
    assert "outside what it sees" in why_not(V1.format("/../else"), mount(own, version=1))


def test_cgroup_version_1_without_hierarchy_is_not_used(tmp_path):
    fill(tmp_path, memory_use_hierarchy="0\n")
    assert why_not(V1.format("/"), mount(tmp_path, version=1)) == f"{tmp_path} does not account for child groups"


@pytest.mark.parametrize(("version", "told"), [(1, V1), (2, V2)])
def test_an_unwritable_control_group_is_reported(tmp_path, version, told, monkeypatch):
    own = fill(tmp_path, cgroup_controllers="memory", cgroup_subtree_control="memory")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert why_not(told.format("/"), mount(own, version=version)) == f"{own} cannot be written to"


def test_version_2_has_it_in_the_own_group_where_that_hands_memory_on(tmp_path):
    own = fill(tmp_path, cgroup_controllers="cpu memory\n", cgroup_subtree_control="memory\n")
    assert where(V2.format("/"), mount(tmp_path, version=2)) == Place(folder=own, version=2)


def test_version_2_has_it_beside_the_own_group_where_the_unit_is_left_to_its_user(tmp_path, monkeypatch):
    above, _ = unit(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert where(V2.format("/gym.service/worker"), mount(tmp_path, version=2)) == Place(folder=above, version=2)
    assert (above / "cgroup.subtree_control").read_text() == "+memory"


def test_root_takes_no_group_that_is_not_marked_as_left_to_it(tmp_path, monkeypatch):
    above, _ = unit(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    seen = mount(tmp_path, version=2)
    assert why_not(V2.format("/gym.service/worker"), seen) == f"{above} is not delegated to this process"
    try:
        os.setxattr(above, "user.delegate", b"1")
    except OSError as problem:
        pytest.skip(f"SKIPPED by name: marks on files: {problem.strerror}")
    assert where(V2.format("/gym.service/worker"), seen) == Place(folder=above, version=2)


def test_a_slice_of_systemd_is_not_used(tmp_path, monkeypatch):
    fill(tmp_path / "app.slice", cgroup_procs="", cgroup_subtree_control="memory\n")
    fill(tmp_path / "app.slice" / "shell.scope", cgroup_controllers="memory\n", cgroup_subtree_control="")
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert why_not(V2.format("/app.slice/shell.scope"), mount(tmp_path, version=2)) == (
        f"{tmp_path}/app.slice is not delegated to this process"
    )


def test_version_2_is_not_left_with_a_bound_of_its_own(tmp_path, monkeypatch):
    _, own = unit(tmp_path, memory_max="1000000\n")
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert why_not(V2.format("/gym.service/worker"), mount(tmp_path, version=2)) == (
        f"{own} has a memory limit that a sibling group would escape"
    )


def test_a_group_that_cannot_hand_memory_on_is_said(tmp_path, monkeypatch):
    above, _ = unit(tmp_path)
    (above / "cgroup.subtree_control").unlink()
    (above / "cgroup.subtree_control").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert why_not(V2.format("/gym.service/worker"), mount(tmp_path, version=2)) == (
        f"{above} does not delegate memory: Is a directory"
    )


def test_version_2_without_memory_or_at_its_top_has_none(tmp_path):
    fill(tmp_path, cgroup_controllers="hugetlb\n", cgroup_subtree_control="")
    assert why_not(V2.format("/"), mount(tmp_path, version=2)) == f"{tmp_path} has no memory limit"
    fill(tmp_path, cgroup_controllers="memory\n")
    assert why_not(V2.format("/"), mount(tmp_path, version=2)) == f"{tmp_path} is not delegated to this process"


def test_where_nothing_is_mounted_there_is_none():
    assert why_not(V1.format("/"), OTHERS) == "no control groups for memory are mounted"
    assert why_not("", OTHERS) == "no control groups for memory are mounted"


def test_version_2_bounds_all_together_and_ends_one_execution_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_groups, "_TRIES", 1)
    group = MemoryGroup(Place(folder=tmp_path, version=2), max_bytes=2**26)
    assert contents(group.folder) == {
        "cgroup.subtree_control": "+memory",
        "memory.max": str(2**26),
        "memory.swap.max": "0",
    }
    with group.share(2**25) as share:
        assert contents(share.folder) == {"memory.max": str(2**25), "memory.swap.max": "0", "memory.oom.group": "1"}
        assert share.joined(["true"])[-2:] == [str(share.folder / "cgroup.procs"), "true"]
        told = []
        for kills in (0, 2):
            events = f"low 0\nhigh 0\nmax 12\noom 3\noom_kill {kills}\noom_group_kill 0\n"
            (share.folder / "memory.events").write_text(events)
            told.append(share.was_full())
    assert told == [False, True]
    group.remove()


def contents(folder):
    return {file.name: file.read_text().strip() for file in folder.iterdir() if file.is_file()}


@needs_sandbox
def test_programs_join_a_group_of_version_2_by_its_list_of_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_groups, "_TRIES", 1)
    monkeypatch.setattr(memory_groups, "find_place", lambda: Place(folder=tmp_path, version=2))
    chosen = ChosenSandbox(Choice(at_once=1, memory_mb=400))
    assert chosen.run("print(6 * 7)").stdout == b"42\n"
    assert chosen.describe() == "bubblewrap; memory limit of all programs together: 400 MB (cgroup v2)"
    (made,) = tmp_path.iterdir()
    # The trial of the group, that of the sandbox, and the program.
    shares = [contents(share) for share in sorted(made.iterdir()) if share.is_dir()]
    assert [(share["cgroup.procs"], share["memory.max"]) for share in shares] == [
        ("0", str(64 * 2**20)),
        ("0", str(288 * 2**20)),
        ("0", str(288 * 2**20)),
    ]
    chosen.close()
