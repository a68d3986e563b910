from __future__ import annotations

import logging

import pytest

from prerouter.training.quiet import quiet_libraries


def test_a_library_that_sets_its_own_level_is_quiet_while_it_trains(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = logging.getLogger("DeepSpeed")
    before = (logger.level, list(logger.filters))
    with quiet_libraries():
        logger.setLevel(logging.INFO)
        logger.warning("no accelerator was found")
        logger.error("out of memory")
    assert [record.getMessage() for record in caplog.records] == ["out of memory"]
    logger.setLevel(before[0])
    assert logger.filters == before[1]
