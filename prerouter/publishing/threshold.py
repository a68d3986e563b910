"""A threshold in a file of its own, which names the checkpoint that it was fitted to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from prerouter.core.errors import CheckpointError
from prerouter.publishing.checkpoint import Sha256
from prerouter.publishing.folder import MAX_ROUTER_BYTES, read_json


class Threshold(BaseModel):
    """LC where p_lc, its log-odds divided by `temperature`, is above `threshold`.

    Whatever else the file says is passed over, so that a router.json is such a file.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    threshold: Annotated[float, Field(ge=-1, le=1)]
    temperature: Annotated[float, Field(ge=0.01, le=100)] = 1.0
    threshold_for: Sha256

    def check(self, place: str, checkpoint: str) -> None:
        """Raises CheckpointError where it was fitted to another checkpoint."""
        if self.threshold_for != checkpoint:
            raise CheckpointError(
                place,
                f"its threshold was fitted to checkpoint {self.threshold_for[:12]}…",
                f"{checkpoint[:12]}…, which is to be loaded",
                "calibrate this router, or give the threshold as a number",
            )


def read_threshold(path: Path) -> Threshold:
    """Raises CheckpointError where the file names no threshold with its checkpoint."""
    if path.is_file() and path.stat().st_size > MAX_ROUTER_BYTES:
        raise CheckpointError(str(path), "is too large", f"{MAX_ROUTER_BYTES} bytes at most")
    try:
        return Threshold.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise CheckpointError(
            str(path),
            f"{key}: {first['msg'][:200]}",
            '{"threshold": …, "temperature": …, "threshold_for": sha256 of the weights}',
        ) from None
