"""What is private is found in whatever file it lies, and named without being given away."""

from __future__ import annotations

import json
import struct
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from prerouter.core.errors import CombinedError
from prerouter.publishing.privacy import Private, check_private, private_here
from prerouter.recipe.recipe import Recipe

HF = "hf_" + "aB3" * 10
QUESTION = "In which year did the Harbour Company's treaty with the islands end?"


def here(
    environment: dict[str, str],
    folders: Sequence[Path] = (),
    texts: Sequence[str] = (),
    long_texts: Sequence[str] = (),
    **sections: Any,
) -> Private:
    cases = {"source": "sample", "answer_models": [{"name": "m"}]}
    recipe = Recipe.model_validate({"name": "r", "cases": cases, **sections})
    return private_here(environment, folders, recipe, texts, long_texts)


def lines_of(folder: Path, private: Private = Private()) -> list[str]:  # noqa: B008
    files = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    try:
        check_private(folder, files, private)
    except CombinedError as error:
        return error.lines
    return []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("made in /home/ann/runs/x", "a path of a machine: /home/ann/runs/x"),
        ("made in '/Users/ann/x'", "a path of a machine: /Users/ann/x"),
        ("see file:///data/secret.txt", "a path of a machine: file:///data/secret.txt"),
        ("(/tmp/pytest-0/run)", "a path of a machine: /tmp/pytest-0/run"),
        ("/root/.cache/x", "a path of a machine: /root/.cache/x"),
        (r"C:\Users\ann\x", "a path of a machine: C:\\Users\\ann\\x"),
        (r"D:\work\alice\run1", "a path of a machine: D:\\work\\alice\\run1"),
        (r"C:\temp\new", "a path of a machine: C:\\temp\\new"),
        (r"in D:\runs\alice.", "a path of a machine: D:\\runs\\alice"),
        (r"from E:\runs\mine", "a path of a machine: E:\\runs\\mine"),
        ("C:/work/x", "a path of a machine: C:/work/x"),
        (r"see \\lab-server\share\x", "a path of a machine: \\\\lab-server\\share\\x"),
        *(
            (f"in {root}/ann/x", f"a path of a machine: {root}/ann/x")
            for root in (
                "/private/var",
                "/mnt",
                "/scratch",
                "/Volumes",
                "/data",
                "/export/home",
                "/nfs",
            )
        ),
        ("/data/alice/run", "a path of a machine: /data/alice/run"),
        ("gsk_" + "a1" * 20, "a Groq API key: gsk_… (44 characters)"),
        ("nvapi-" + "a_1-" * 10, "an NVIDIA API key: nvap… (46 characters)"),
        ("xai-" + "a1" * 20, "an xAI API key: xai-… (44 characters)"),
        ("r8_" + "a1" * 18, "a Replicate token: r8_a… (39 characters)"),
        ("npm_" + "a1" * 18, "an npm token: npm_… (40 characters)"),
        ("pypi-AgE" + "a1" * 20, "a PyPI token: pypi… (48 characters)"),
        ("gho_" + "z9" * 18, "a GitHub token: gho_… (40 characters)"),
        ("ghu_" + "z9" * 18, "a GitHub token: ghu_… (40 characters)"),
        ("Authorization: Bearer " + "a.1" * 8, "a bearer token: Bear… (31 characters)"),
        ("Name=x;AccountKey=" + "a+1/" * 8 + "==", "an Azure storage key: Acco…"),
        ("https://:secret1@host/x", "an address with a password: http… (17 characters)"),
        (f"token {HF}", "a Hugging Face token: hf_a… (33 characters)"),
        ("sk-proj-" + "x1" * 20, "an API key: sk-p… (48 characters)"),
        ("AKIA" + "Q2" * 8, "an AWS access key: AKIA… (20 characters)"),
        ("ghp_" + "z9" * 18, "a GitHub token: ghp_… (40 characters)"),
        ("AIza" + "s" * 35, "a Google API key: AIza… (39 characters)"),
        ("-----BEGIN RSA PRIVATE KEY-----", "a private key"),
        ("https://ann:secret1@host/x", "an address with a password: http… (20 characters)"),
        ("write to ann.lee@firm.co.uk!", "an e-mail address: ann.lee@firm.co.uk"),
    ],
)
@pytest.mark.parametrize("name", ["README.md", "evaluation.json", "evaluation/plane.svg"])
def test_what_is_private_by_its_form(tmp_path: Path, name: str, text: str, told: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"note": text}) if name.endswith("json") else f"<p>{text}</p>")
    [line] = lines_of(tmp_path)
    assert line.startswith(f"{path}: holds ")
    assert told in line
    assert HF not in line
    assert "secret1" not in line


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org/home/ann/page and /usr/lib/python3",
        "git@github.com:you/x and ann@example.com",
        "12345+ann@users.noreply.github.com",
        "the task-risk-based rule and hf_hub_download",
        r"{{ 'Q:\n' + question + '\nA:\n' }} and [^\\r\\n\\p{L}]",
        "Authorization: Bearer KEY, at ratio 1:/2 or path/to/data/x",
        "`pip install 'prerouter[train]'`, path/to/this/folder, $HOME",
        "see https://huggingface.co/you/router@main",
        r"'Q:\nquestion\nA:\n' and 'A:\nYes\nNo' and f:\mathbb{R}\to\mathbb{R}",
        r"(?i:\w+) and (?i:foo\b) and (?i:\sbar\sfoo) and r:\d{2,}\w{2,}",
        "POST /data/upload, **/data/**, /mnt and GET /scratch/",
    ],
)
@pytest.mark.parametrize("name", ["README.md", "evaluation.json"])
def test_what_only_looks_like_it_passes(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(json.dumps([text]) if name.endswith("json") else text)
    assert lines_of(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        r'"Q:\nquestion\nA:\n"',
        r'"A:\nYes\nNo"',
        r'{"x": "\\nHello\nWorld"}',
        r'"A:\feed\back"',
        r'"(?i:\\w+)"',
        r'"f:\\mathbb{R}"',
        '"f:\\mathbb{R}"',
    ],
)
def test_the_escapes_of_json_are_no_path(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer_config.json").write_text(text)
    assert lines_of(tmp_path) == []


def test_an_escaped_path_is_found_in_json(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"a": r"\\nas\runs\x", "b": "A:\nYes"}))
    [line] = lines_of(tmp_path)
    assert r"\\nas\runs\x" in line


def test_what_this_machine_knows_is_found_in_any_file(tmp_path: Path) -> None:
    run = tmp_path / "lab" / "runs"
    known = here({"MY_API_KEY": "correct horse", "SHELL": "/bin/bash"}, (run,))
    assert known.secrets == ("correct horse",)
    folder = tmp_path / "router"
    folder.mkdir()
    (folder / "tokenizer.model").write_bytes(b"\xff\xfe trained on " + bytes(run))
    (folder / "README.md").write_text("open: correct horse")
    told = lines_of(folder, known)
    assert "README.md: holds a key of this environment: corr… (13 characters)" in told[0]
    assert f"tokenizer.model: holds a path of this machine: {run}" in told[1]


def test_a_slash_that_json_escapes_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": "\\/home\\/ann\\/x"}')
    [line] = lines_of(tmp_path)
    assert "/home/ann/x" in line


def test_weights_are_read_by_their_header(tmp_path: Path) -> None:
    weights = {"w": np.frombuffer(f"/home/ann/x {HF} ".encode() * 3, np.uint8)}
    save_file(weights, tmp_path / "model.safetensors")
    assert lines_of(tmp_path) == []
    save_file(weights, tmp_path / "model.safetensors", metadata={"from": "/home/ann/base"})
    [line] = lines_of(tmp_path)
    assert "/home/ann/base" in line


def test_large_weights_take_no_time(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"w": np.zeros(4, np.uint8)}, path)
    with path.open("r+b") as file:
        file.truncate(20_000_000_000)
    started = time.perf_counter()
    assert lines_of(tmp_path) == []
    assert time.perf_counter() - started < 1


def test_the_words_of_a_vocabulary_are_no_path(tmp_path: Path) -> None:
    model = {"type": "BPE", "vocab": {"/home/ann/x": 1, "a@b.org": 2}, "merges": ["/tmp/ x"]}
    told = {"model": model, "added_tokens": [{"content": "<|end|>"}]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(told))
    assert lines_of(tmp_path) == []
    told["added_tokens"] = [{"content": "/home/ann/x"}]
    (tmp_path / "tokenizer.json").write_text(json.dumps(told))
    assert len(lines_of(tmp_path)) == 1


def test_a_real_tokenizer_passes_in_short_time(qwen3_tokenizer_dir: Path) -> None:
    started = time.perf_counter()
    assert lines_of(qwen3_tokenizer_dir, Private(case_texts=("x" * 30,) * 2000)) == []
    assert time.perf_counter() - started < 5


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", b"0" * 13), *chunks, (b"IEND", b""))
    )


@pytest.mark.parametrize(
    ("kind", "note", "found"),
    [
        (b"tEXt", b"Author\0ann@firm.org", True),
        (b"zTXt", b"Path\0\0" + zlib.compress(b"/home/ann/x"), True),
        (b"zTXt", b"Path\0\0not packed", False),
        (b"iTXt", b"Path\0\1\0en\0Pfad\0" + zlib.compress(b"/home/ann/x"), True),
        (b"iTXt", b"Path\0\0\0en\0Pfad\0/home/ann/x", True),
        (b"IDAT", b"ann@firm.org /home/ann/x", False),
    ],
)
def test_a_picture_is_read_by_its_notes(
    tmp_path: Path, kind: bytes, note: bytes, found: bool
) -> None:
    (tmp_path / "plane.png").write_bytes(png((kind, note)))
    assert bool(lines_of(tmp_path)) is found


def test_what_follows_a_picture_is_read(tmp_path: Path) -> None:
    (tmp_path / "plane.png").write_bytes(png() + b" /home/ann/x ")
    assert len(lines_of(tmp_path)) == 1


def test_of_a_data_set_keys_are_refused_and_what_it_quotes_is_not(tmp_path: Path) -> None:
    def write(text: str) -> None:
        messages = [{"role": "user", "content": text}]
        table = pa.table({"prompt": [messages], "title": ["A paper"]})
        pq.write_table(table, tmp_path / "train.parquet")

    write("Ann Lee, ann@firm.org, writes of /home/ann and of harbours")
    assert lines_of(tmp_path, Private(case_texts=("of harbours",))) == []
    write(f"the key {HF}")
    [line] = lines_of(tmp_path)
    assert "train.parquet: holds a Hugging Face token" in line


@pytest.mark.parametrize(
    "name",
    [
        "MY_TOKENS", "OPENAI_API_KEY_2", "OPENAI_API_KEY2", "DB_PASS", "GITHUB_PAT",
        "REGISTRY_AUTH", "AWS_CREDENTIAL", "AWS_CREDENTIALS", "my_secrets", "VAULT",
    ],
)  # fmt: skip
def test_a_key_is_known_by_its_variable(tmp_path: Path, name: str) -> None:
    engine = {"kind": "openai", "model": "m", "base_url": "http://h/v1"}
    engine["api_key_variable"] = "VAULT"
    sections: dict[str, Any] = {"teach": {"engine": engine}, "filter": {}}
    known = here({name: "correct horse", "TERM_PROGRAM": "xterm-256color"}, **sections)
    assert known.secrets == ("correct horse",)
    (tmp_path / "README.md").write_text("xterm-256color, correct horse")
    assert len(lines_of(tmp_path, known)) == 1


def test_the_paths_of_the_recipe_are_private(tmp_path: Path) -> None:
    real = tmp_path / "disk" / "cases"
    real.mkdir(parents=True)
    (tmp_path / "linked").symlink_to(real)
    cases = {"source": "lara", "path": f"{tmp_path}/linked"}
    train = {"model": "/opt/weights/big"}
    known = here({}, cases=cases, teach={"teacher": "guideline"}, filter={}, train=train)
    folder = tmp_path / "router"
    folder.mkdir()
    for text in (f"x{real}", f"x{tmp_path}/linked", "of /opt/weights/big"):
        (folder / "README.md").write_text(text)
        assert any("a path of this machine" in line for line in lines_of(folder, known)), text


def test_a_home_that_nobody_has_is_a_path_as_it_stands() -> None:
    known = here({}, cases={"source": "lara", "path": "~nobody-here/cases"})
    assert any(place.endswith("/~nobody-here/cases") for place in known.places)


def test_the_name_of_an_answer_model_is_on_the_card(tmp_path: Path) -> None:
    def told(name: str) -> list[str]:
        cases = {"source": "sample", "answer_models": [{"name": name}]}
        (tmp_path / "README.md").write_text(f"answered by {name}")
        return lines_of(tmp_path, here({}, cases=cases))

    assert told("/models/Qwen2.5-7B") == []
    [line] = told("/home/ann/models/mine")
    assert "--served-model-name" in line


@pytest.mark.parametrize("name", ["merges.txt", "vocab.json", "vocab.txt", "tokenizer.json"])
def test_keys_are_looked_for_in_vocabularies_as_well(tmp_path: Path, name: str) -> None:
    known = here({"MY_TOKEN": "correct horse"})
    for text, found in ((HF, 1), ("correct horse", 1), ("a@firm.org /home/ann/x", 0)):
        data = text if name.endswith("txt") else json.dumps({"model": {"vocab": {text: 1}}})
        (tmp_path / name).write_text(data)
        assert len(lines_of(tmp_path, known)) == found


@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1"]
)
def test_no_encoding_hides_anything(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "losses.csv").write_bytes(f"é, {HF}, /home/ann/x, a@firm.org".encode(encoding))
    told = "\n".join(lines_of(tmp_path))
    for words in ("a Hugging Face token", "/home/ann/x", "a@firm.org"):
        assert words in told


HEAD = (
    "The harbour of the northern islands was built by nine companies in the year of the fire, and "
)
HEAD += "its walls were drawn by two sisters who never saw the sea before the work began."


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("it says: walls were drawn by two sisters who never saw the sea, it does", True),
        ("so harbour of the northern islands was built by", True),
        ("so harbour of the northern islands was built", False),
        ("the walls were drawn by two sisters", False),
        ("1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12", False),
        ("Paris", False),
        ("the year of the fire", False),
        ("<b>its</b> walls were <i>drawn by two</i> sisters who never saw the sea", True),
    ],
)
@pytest.mark.parametrize("name", ["README.md", "evaluation.svg", "evaluation.json"])
def test_the_middle_of_a_text_is_known_again(
    tmp_path: Path, name: str, text: str, known: bool
) -> None:
    if name.endswith("json") and "<" in text:
        return
    (tmp_path / name).write_text(json.dumps([text]) if name.endswith("json") else text)
    numbers = " ".join(map(str, range(30)))
    for given in ({"texts": [HEAD, numbers]}, {"long_texts": [HEAD, numbers, "Paris"]}):
        assert bool(lines_of(tmp_path, here({}, **given))) is known


def test_the_middle_of_a_text_without_spaces_is_known_again(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("见:两位姐妹画了港口的城墙。", "utf-8")
    known = here({}, long_texts=["在那场大火之年,两位姐妹画了港口的城墙,她们从未见过大海。"])
    assert len(lines_of(tmp_path, known)) == 1


@pytest.mark.parametrize(
    "shown",
    [
        QUESTION,
        "".join(f"<tspan>{word}</tspan>" for word in QUESTION.split()),
        QUESTION.replace(" ", "\n").upper(),
        QUESTION.replace("'", "&#x27;"),
        f"asked: {QUESTION} Answer: 1911",
    ],
)
def test_a_text_of_a_case_is_known_again(tmp_path: Path, shown: str) -> None:
    known = here({}, (), [QUESTION, "What is the revenue?"])
    (tmp_path / "README.md").write_text(f"What is the revenue? 12. {shown}")
    [line] = lines_of(tmp_path, known)
    assert "holds a text of a case: in which year did the harbour" in line
    assert "set publish.raw_text: true" in line


def test_a_question_without_spaces_is_a_text_as_well(tmp_path: Path) -> None:
    known = here({}, (), ["北方港口条约何时签订?", "何时?"])
    (tmp_path / "README.md").write_text("何时? 北方港口条约何时签订?", "utf-8")
    [line] = lines_of(tmp_path, known)
    assert "北方港口条约何时签订" in line


def test_a_word_that_a_key_happens_to_be_is_no_secret(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("thinking disabled")
    assert lines_of(tmp_path, here({"MY_TOKEN": "disabled"}, ())) == []


def test_the_beginning_of_a_long_text_gives_it_away(tmp_path: Path) -> None:
    head = "The harbour of the northern islands was built by nine companies. " * 8
    known = here({}, (), [head])
    (tmp_path / "README.md").write_text(head[:120])
    assert len(lines_of(tmp_path, known)) == 1


def test_many_findings_are_told_in_few_lines(tmp_path: Path) -> None:
    for number in range(14):
        (tmp_path / f"{number:02}.md").write_text("/home/ann/x and again /home/ann/y")
    told = lines_of(tmp_path)
    assert len(told) == 11
    assert "holds 4 more of the kind" in told[-1]
