from __future__ import annotations

import pytest

from prerouter.core.errors import CombinedError, InputError, MissingDependencyError


def test_an_error_is_one_line_whatever_a_file_put_into_it() -> None:
    error = InputError("a.csv:3", "got 'x\ny\r\nz'", "a number", "mend it")
    assert error.line == "a.csv:3: got 'x y z'; a number; mend it"


def test_parts_that_are_empty_leave_no_trace() -> None:
    assert InputError("a.csv", "is empty").line == "a.csv: is empty"


def test_a_combined_error_tells_every_one() -> None:
    one, two = InputError("a", "is bad"), InputError("b", "is worse")
    combined = CombinedError([one, CombinedError([two])])
    assert combined.lines == ["a: is bad", "b: is worse"]
    assert str(combined) == "a: is bad\nb: is worse"
    with pytest.raises(ValueError, match="at least one"):
        CombinedError([])


def test_a_missing_library_names_the_extra() -> None:
    line = MissingDependencyError("vllm", "vllm").line
    assert line == "vllm: is not installed; in prerouter's clone: pip install -e '.[vllm]'"
