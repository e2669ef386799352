"""A trace or a parameter that cannot be replayed is refused in one line that says what would be
right.
"""

from pathlib import Path

import pytest

from .test_refusals import refused
from .test_replay import NODE_HEAD, POD_HEAD, write_trace

POD = {
    "name": "p",
    "cpu_milli": "1000",
    "memory_mib": "0",
    "num_gpu": "1",
    "gpu_milli": "500",
    "gpu_spec": "",
    "qos": "LS",
    "pod_phase": "Running",
    "creation_time": "0",
    "deletion_time": "5",
    "scheduled_time": "",
}


def pod(**other: str) -> str:
    return ",".join({**POD, **other}.values())


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            {"cpu_milli": "many"},
            "line 2: cpu_milli 'many' is not valid: it must be a whole number, 0 or more",
        ),
        (
            {"memory_mib": "-1"},
            "line 2: memory_mib '-1' is not valid: it must be a whole number, 0 or more",
        ),
        (
            {"memory_mib": "9" * 13},
            "line 2: memory_mib '9999999999999' is not valid: it must be a whole number",
        ),
        (
            {"num_gpu": "33"},
            "line 2: num_gpu '33' is not valid: it must be a whole number from 0 to 32",
        ),
        (
            {"gpu_milli": "1500"},
            "line 2: gpu_milli '1500' is not valid: it must be a whole number from 0 to 1000",
        ),
        (
            {"gpu_milli": "0"},
            "num_gpu 1 with gpu_milli 0 is not valid: it must be a share of 1 to 1000 of one GPU, "
            "or",
        ),
        (
            {"num_gpu": "2"},
            "num_gpu 2 with gpu_milli 500 is not valid: it must be a share of 1 to 1000 of one "
            "GPU, or",
        ),
        (
            {"creation_time": "nan"},
            "creation_time 'nan' is not valid: it must be a number of seconds, 0 or more",
        ),
        (
            {"deletion_time": ""},
            "deletion_time '' is not valid: it must be a number of seconds, 0 or more",
        ),
        (
            {"name": "a b"},
            "line 2: name 'a b' is not valid: it must be 1 to 128 letters, digits or _.@-",
        ),
        ({"gpu_spec": "a b"}, "line 2: label value 'a b' is not valid: it must be 1 to 63 letters"),
    ],
)
def test_a_bad_value_is_named_with_its_line(
    other: dict[str, str], said: str, tmp_path: Path
) -> None:
    line = refused("replay", "gpu", str(write_trace(tmp_path, pods=(pod(**other),))))
    assert said in line
    assert "openb_pod_list_gpuspec33.csv" in line


def test_a_line_without_a_column_and_a_name_that_is_there_twice_are_named(tmp_path: Path) -> None:
    short = refused("replay", "gpu", str(write_trace(tmp_path, pods=("p,1000",))))
    assert "line 2: there is no num_gpu: a line must have a value for each column" in short
    twice = refused("replay", "gpu", str(write_trace(tmp_path, pods=(pod(), pod()))))
    assert "line 3: p is there twice: each must have a name of its own" in twice
    node = refused("replay", "gpu", str(write_trace(tmp_path, nodes=("n,1000,1,-2,T4",))))
    assert "line 2: gpu '-2' is not valid: it must be a whole number from 0 to 32" in node


def test_a_folder_without_the_files_is_refused_with_their_names(tmp_path: Path) -> None:
    both = "it must have one file openb_node_list*.csv* and one file openb_pod_list*.csv*"
    assert f"does not exist: {both}" in refused("replay", "gpu", str(tmp_path / "none"))
    (tmp_path / "file").write_text("")
    assert f"is not a folder: {both}" in refused("replay", "gpu", str(tmp_path / "file"))
    assert "must have one file openb_node_list*.csv*, .csv or .csv.gz; it has none" in refused(
        "replay", "gpu", str(tmp_path)
    )
    folder = write_trace(tmp_path / "two")
    (folder / "openb_pod_list_default.csv").write_text(POD_HEAD)
    assert "it has 2: openb_pod_list_default.csv, openb_pod_list_gpuspec33.csv" in refused(
        "replay", "gpu", str(folder)
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            b"",
            "has no column sn, cpu_milli, memory_mib, gpu, model: it has no columns, and needs "
            "sn, cpu_milli",
        ),
        (
            b"sn,cpu,memory_mib,gpu,model\n",
            "has no column cpu_milli: it has sn, cpu, memory_mib, gpu, model, and needs",
        ),
        (
            NODE_HEAD.encode(),
            "is empty: below the names of its columns it must have a line for each of them",
        ),
        (b"\xff\xfe\x00", "cannot be read: 'utf-8' codec"),
    ],
)
def test_a_file_that_is_no_table_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    folder = write_trace(tmp_path)
    (folder / "openb_node_list_all_node.csv").write_bytes(content)
    assert said in refused("replay", "gpu", str(folder))


def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    folder = write_trace(tmp_path)
    (folder / "openb_node_list_all_node.csv").rename(folder / "openb_node_list.csv.gz")
    assert "openb_node_list.csv.gz cannot be read: Not a gzipped file" in refused(
        "replay", "gpu", str(folder)
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--schedulers", "9"],
            "--schedulers 9 is not valid: it must be a whole number from 1 to 8, the number of par",
        ),
        (
            ["--partitions", "0"],
            "--partitions 0 is not valid: it must be a whole number from 1 to 4096",
        ),
        (["--gap", "0"], "--gap 0 is not valid: it must be a number of seconds from 0.001 to 3600"),
        (
            ["--speedup", "nan"],
            "--speedup nan is not valid: it must be a number from 1 to 1,000,000,000",
        ),
        (["--seed", "-1"], "--seed -1 is not valid: it must be a whole number, 0 or more"),
        (["--url", "nowhere"], "url='nowhere' is not valid"),
        (["--url", "redis://127.0.0.1:1/0"], "127.0.0.1:1"),
    ],
)
def test_a_bad_parameter_is_refused(words: list[str], said: str, tmp_path: Path) -> None:
    assert said in refused("replay", "gpu", str(write_trace(tmp_path)), *words)


def test_a_report_of_nothing_says_how_to_make_results(tmp_path: Path) -> None:
    line = refused("replay", "report", str(tmp_path), str(tmp_path / "page.md"))
    assert (
        f"no results in {tmp_path}: parsync replay gpu DIR --out {tmp_path}/NAME makes them" in line
    )
