"""The launchers: as shell, as dry runs, and teach_slurm.sh from end to end with a stand-in srun."""

from __future__ import annotations

import itertools
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from prerouter.recipe.engine import OpenAIEngine, RayEngine
from prerouter.recipe.recipe import load_recipe

LAUNCHERS = ("serve_teacher.sh", "serve_teacher_nodes.sh", "teach_slurm.sh")
HOSTILE = """a "quoted" model's $(touch harm) `touch harm`; touch harm & name"""


def launch(
    repository: Path, script: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    return subprocess.run(
        [repository / "scripts" / script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**clean, "PYTHON": sys.executable, **environment},
    )


@pytest.fixture
def recipe(repository: Path, tmp_path: Path) -> Path:
    path = tmp_path / "my recipe.yaml"
    path.write_text(f"""
name: launched
cases:
  source: sample
  path: {repository / "data" / "sample"}
  answer_models: [{{name: reader-4k, context_window: 4096}}]
teach:
  engine: {{kind: vllm, model: some/model, tensor_parallel_size: 8, max_model_len: 8192}}
""")
    return path


@pytest.mark.parametrize("script", LAUNCHERS)
def test_it_is_shell(repository: Path, script: str) -> None:
    path = repository / "scripts" / script
    subprocess.run(["bash", "-n", path], check=True)
    assert os.access(path, os.X_OK)


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("serve_teacher.sh", ()),
        ("serve_teacher_nodes.sh", ("--nodes", "2", "--head", "node-a")),
    ],
)
def test_whatever_a_name_holds_reaches_vllm_as_one_argument(
    repository: Path, tmp_path: Path, script: str, arguments: tuple[str, ...]
) -> None:
    done = launch(repository, script, "--dry-run", *arguments, HOSTILE, "--tensor-parallel-size=2")
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        assert HOSTILE in shlex.split(line)
    assert not Path("harm").exists()


def machines(output: str) -> list[list[str]]:
    lines = [line for line in output.splitlines() if line.startswith("# machine ")]
    return [shlex.split(line.partition(": ")[2])[1:] for line in lines]


def test_each_machine_gets_its_number(repository: Path) -> None:
    sizes = ("-tp", "8", "--pipeline-parallel-size", "2")
    done = launch(
        repository,
        "serve_teacher_nodes.sh",
        "--dry-run",
        "--nodes",
        "2",
        "--head",
        "a",
        "m",
        *sizes,
    )
    first, second = machines(done.stdout)
    same = ["m", *sizes, "--nnodes", "2", "--node-rank"]
    rest = ["--master-addr", "a", "--master-port", "29501"]
    assert first == [*same, "0", *rest]
    assert second == [*same, "1", *rest, "--headless"]


def test_replicas_are_spread_over_the_machines(repository: Path) -> None:
    done = launch(
        repository,
        "serve_teacher_nodes.sh",
        *("--dry-run", "--nodes", "3", "--head", "a", "--by", "replicas"),
        *("m", "--data-parallel-size", "6"),
    )
    found = machines(done.stdout)
    assert ["--data-parallel-start-rank" in options for options in found] == [False, True, True]
    assert [options[-2:] for options in found[1:]] == [
        ["--data-parallel-start-rank", "2"],
        ["--data-parallel-start-rank", "4"],
    ]
    assert all("--data-parallel-size-local" in options and "2" in options for options in found)


def test_a_ray_cluster_is_begun_by_the_same_command_everywhere(repository: Path) -> None:
    done = launch(
        repository,
        "serve_teacher_nodes.sh",
        *("--dry-run", "--nodes", "2", "--head", "a", "--by", "ray"),
        *("m", "--tensor-parallel-size", "16"),
    )
    first, second = machines(done.stdout)
    assert first == second
    assert first[:6] == ["symmetric-run", "--address", "a:6379", "--min-nodes", "2", "--"]
    assert first[-2:] == ["--distributed-executor-backend", "ray"]


@pytest.mark.parametrize(
    ("script", "arguments", "problem"),
    [
        ("serve_teacher.sh", (), "usage"),
        ("serve_teacher_nodes.sh", ("m",), "--nodes takes a number"),
        ("serve_teacher_nodes.sh", ("--nodes", "2", "m"), "--head takes a host"),
        ("serve_teacher_nodes.sh", ("--nodes", "2", "--head", "a;b", "m"), "--head takes a host"),
        ("serve_teacher_nodes.sh", ("--nodes", "2", "--head", "a"), "no model"),
        ("serve_teacher_nodes.sh", ("--nodes",), "--nodes needs a value"),
        ("serve_teacher_nodes.sh", ("--node", "2", "m"), "--node is unknown here"),
        (
            "serve_teacher_nodes.sh",
            ("--nodes", "2", "--head", "a", "m", "-tp", "8"),
            "--rank takes",
        ),
        (
            "serve_teacher_nodes.sh",
            ("--nodes", "3", "--head", "a", "--rank", "0", "m", "-tp=8"),
            "size 8 can't be spread evenly over 3 machines",
        ),
        (
            "serve_teacher_nodes.sh",
            ("--nodes", "2", "--head", "a", "--rank", "0", "--by", "replicas", "m", "-dp", "3"),
            "--data-parallel-size 3 can't be spread evenly over 2 machines",
        ),
        (
            "serve_teacher_nodes.sh",
            ("--nodes", "2", "--head", "a", "--rank", "0", "m", "-tp", "two"),
            "a parallel size is a number, not two",
        ),
        ("teach_slurm.sh", ("--by", "magic"), "--by takes"),
        ("teach_slurm.sh", ("no-such.yaml", "m"), "no-such.yaml: no such recipe"),
        ("teach_slurm.sh", ("recipes/quickstart.yaml",), "no model"),
        ("teach_slurm.sh", ("recipes/quickstart.yaml", "m"), "this is no SLURM job"),
        (
            "teach_slurm.sh",
            ("--by", "ray-data", "recipes/quickstart.yaml", "m"),
            "the recipe names",
        ),
    ],
)
def test_wrong_arguments_are_named(
    repository: Path, script: str, arguments: tuple[str, ...], problem: str
) -> None:
    given = [str(repository / one) if one.startswith("recipes/") else one for one in arguments]
    done = launch(repository, script, *given)
    assert done.returncode == 2
    assert problem in done.stderr
    assert not done.stdout


def settings(line: str) -> list[str]:
    words = shlex.split(line)
    return [value for flag, value in itertools.pairwise(words) if flag == "--set"]


def test_a_dry_run_shows_what_slurm_would_do_and_checks_the_recipe(
    repository: Path, recipe: Path
) -> None:
    done = launch(
        repository, "teach_slurm.sh", "--dry-run", str(recipe), HOSTILE, "-tp", "16", NODES="4"
    )
    assert done.returncode == 0, done.stderr
    cases, serve, teach = done.stdout.splitlines()[:3]
    assert shlex.split(cases)[-2:] == ["cases", str(recipe)]
    assert shlex.split(serve)[:3] == ["srun", "--nodes", "4"]
    engine = load_recipe(recipe, settings(teach)).teach.engine
    assert isinstance(engine, OpenAIEngine)
    assert (engine.model, engine.base_url) == (HOSTILE, "http://127.0.0.1:8000/v1")
    assert "calls of" in done.stdout
    assert "through openai" in done.stdout


def test_the_same_recipe_runs_under_ray_data(repository: Path, recipe: Path) -> None:
    done = launch(repository, "teach_slurm.sh", "--dry-run", "--by", "ray-data", str(recipe))
    assert done.returncode == 0, done.stderr
    work = done.stdout.splitlines()[1]
    assert "ray symmetric-run --address node-0:6379 --min-nodes 2 --" in work
    engine = load_recipe(recipe, settings(work)).teach.engine
    assert isinstance(engine, RayEngine)
    assert (engine.replicas, engine.replica.tensor_parallel_size) == (2, 8)
    assert "through ray" in done.stdout


def stand_in(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_the_job_serves_asks_and_stops_the_server(
    repository: Path, recipe: Path, tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # A server that is up after a while, and a prerouter that writes down how it was called.
    (tmp_path / "health").write_text("up")
    stand_in(
        tmp_path / "srun",
        f"#!/bin/bash\necho $$ > {tmp_path}/pid\nsleep 1\ncd {tmp_path}\n"
        f"exec {sys.executable} -m http.server {port} --bind 127.0.0.1\n",
    )
    stand_in(tmp_path / "scontrol", "#!/bin/bash\nprintf 'node-a\\nnode-b\\n'\n")
    stand_in(
        tmp_path / "python",
        f'#!/bin/bash\nif [ "$1 $2" = "-m prerouter" ]; then printf "%q " "${{@:3}}" >> '
        f'{tmp_path}/calls; echo >> {tmp_path}/calls; else exec {sys.executable} "$@"; fi\n',
    )
    done = launch(
        repository,
        "teach_slurm.sh",
        *(str(recipe), "some/model", "-tp", "16"),
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        PYTHON=str(tmp_path / "python"),
        PORT=str(port),
        SLURM_JOB_NODELIST="node-[a-b]",
        SLURM_JOB_NUM_NODES="2",
    )
    assert done.returncode == 0, done.stderr
    cases, teach = (tmp_path / "calls").read_text().splitlines()
    assert shlex.split(cases) == ["cases", str(recipe)]
    engine = load_recipe(recipe, settings(teach)).teach.engine
    assert isinstance(engine, OpenAIEngine)
    assert engine.base_url == f"http://127.0.0.1:{port}/v1"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
