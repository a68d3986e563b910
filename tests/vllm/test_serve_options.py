"""What a launcher's dry run says of options, asked of the installed vLLM's own parser."""

from __future__ import annotations

import pytest

from scripts.check_serve_options import main, problem


@pytest.mark.parametrize(
    "options",
    [
        "m --tensor-parallel-size 8 -pp 2 --nnodes 2 --node-rank 1 --master-addr h --headless",
        "m --data-parallel-size=4 --data-parallel-size-local 2 --data-parallel-address h "
        "--data-parallel-rpc-port 29501 --headless --data-parallel-start-rank 2",
        "m --tensor_parallel_size 16 --distributed-executor-backend ray",
        "m --reasoning-parser qwen3 --enable-prompt-tokens-details --no-enable-chunked-prefill",
    ],
)
def test_options_that_vllm_takes(options: str) -> None:
    assert problem(options.split()) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("m --tensor-paralel-size 8", "--tensor-paralel-size: unknown; did you mean --tensor-"),
        ("m --zzzzzzzzzzzz", "--zzzzzzzzzzzz: unknown; remove it"),
        ("m --tensor-parallel-size eight", "invalid int value: 'eight'"),
        ("m --enable-auto-tool-choice", "requires --tool-call-parser"),
        ("m stray", "unrecognized arguments: stray"),
    ],
)
def test_options_that_vllm_refuses(
    options: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options.split()) == 1
    assert said in capsys.readouterr().err
