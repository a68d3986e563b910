"""The code blocks of the documentation, and what a comment before a block says of it.

A comment in the line before a block changes how it is tested:

    <!-- run -->               its prerouter commands are run, and print what stands below them
    <!-- fails -->             the same of a command that ends with an error, the block's last
    <!-- file: NAME -->        it is written to that file, for what follows on the page
    <!-- wrong: NAME -->       the same of a recipe that is refused
    <!-- not run: REASON -->   Python that isn't executed here
    <!-- not checked: WHAT --> no recipe, no study, nothing of ours
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted([*(REPOSITORY / "docs").rglob("*.md"), REPOSITORY / "README.md"])

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<body>.*?)^(?P=indent)```$", re.M | re.S
)
_REMARK = re.compile(
    r"<!-- (?P<word>run|fails|file|wrong|not run|not checked)(?:: (?P<reason>[^>]+?))? -->\n\Z"
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the line of its fence, its language, and its remark."""

    page: Path
    line: int
    language: str
    body: str
    remark: str = ""
    reason: str = ""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command of a block, and what is printed below it."""

    words: tuple[str, ...]
    output: tuple[str, ...]


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    found = []
    for match in _FENCE.finditer(text):
        indent = match["indent"]
        before = re.sub(r"\n *\Z", "\n", text[: match.start()])
        remark = _REMARK.search(before.rstrip(" "))
        body = "".join(line.removeprefix(indent) for line in match["body"].splitlines(True))
        found.append(
            Block(
                page,
                text.count("\n", 0, match.start()) + 1,
                match["language"],
                body,
                remark["word"] if remark else "",
                (remark["reason"] or "") if remark else "",
            )
        )
    return found


def commands_of(block: Block) -> Iterator[Command]:
    """The commands of a shell block; with prompts (`$ `), the lines between are output."""
    lines = block.body.replace("\\\n", " ").splitlines()
    prompted = any(line.startswith("$ ") for line in lines)
    words: tuple[str, ...] = ()
    output: list[str] = []
    for line in lines:
        if prompted and not line.startswith("$ "):
            output.append(line)
            continue
        if words:
            yield Command(words, tuple(output))
        output = []
        words = tuple(shlex.split(line.removeprefix("$ "), comments=True))
    if words:
        yield Command(words, tuple(output))


def of_prerouter(words: tuple[str, ...]) -> tuple[str, ...] | None:
    """What follows `prerouter`, in a command that calls it by itself or through a launcher."""
    for place, word in enumerate(words):
        assigned = all("=" in before for before in words[:place])
        if word == "prerouter" and (assigned or words[place - 1] == "-m"):
            return words[place + 1 :]
    return None
