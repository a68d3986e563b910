"""Libraries that print on their own are kept quiet: progress and notes go through `Progress`."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

LOGGERS = ("transformers", "trl", "peft", "accelerate", "datasets")


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Errors only, and no bars, from the training libraries; as before when it ends."""
    import datasets
    from transformers.utils import logging as transformers_logging

    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    had_bars = transformers_logging.is_progress_bar_enabled()
    had_dataset_bars = not datasets.are_progress_bars_disabled()
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    # DeepSpeed sets its logger's level when it is imported, which happens in here.
    deepspeed = logging.getLogger("DeepSpeed")
    deepspeed.addFilter(_is_an_error)
    transformers_logging.disable_progress_bar()
    datasets.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        deepspeed.removeFilter(_is_an_error)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        if had_bars:
            transformers_logging.enable_progress_bar()
        if had_dataset_bars:
            datasets.enable_progress_bars()


def _is_an_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR
