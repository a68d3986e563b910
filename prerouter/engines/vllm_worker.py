"""What runs in vLLM's own processes: entropies taken where the logits are.

vLLM loads it by name, and nothing else does, so that it may import vLLM and torch at its top.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates
from vllm.v1.worker.gpu.sample.logits_processor.interface import (
    LogitsProcessor as SlotLogitsProcessor,
)

from prerouter.engines.sampling import entropy_bits
from prerouter.engines.vllm_entropy import ASKED, Kept

# vLLM makes the processor and the worker apart; they meet here, in the process of both.
_KEPT: dict[str, dict[int, torch.Tensor]] = {}


@dataclass(frozen=True)
class _Asked:
    """A request whose first `tokens` entropies are kept, by the place of the token from 0.

    `written` is vLLM's own list of what the request has been given so far.
    """

    tokens: int
    written: list[int]
    bits: dict[int, torch.Tensor]


class EntropyKeeper(LogitsProcessor, SlotLogitsProcessor):  # type: ignore[misc]
    """Keeps entropies of the model's own distribution and leaves every logit as it is.

    It sees logits in float32 before temperature and top_p. Where it stands in a row is the place
    of the token that is sampled next, so that a prompt read in parts, or a request that was put
    off and begun again, is right in the end. vLLM has two model runners, which call it in two
    ways: the first tells of rows that move, the second of slots.
    """

    def __init__(self, config: Any, device_or_slots: Any, pin_memory: bool = False) -> None:
        self._slots = device_or_slots
        self._asked: dict[int, _Asked] = {}

    def is_argmax_invariant(self) -> bool:
        """It is, but those that say so are called after temperature, and not in greedy decoding."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """First runner: requests that came, went or moved."""
        process_dict_updates(
            self._asked, batch_update, lambda params, _, written: _asked(params, written)
        )

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Second runner: who has this slot from now on."""
        asked = _asked(sampling_params, [])
        if asked is None:
            self._asked.pop(req_idx, None)
        else:
            self._asked[req_idx] = asked
        return asked is not None

    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        """`logits` of shape (rows, vocabulary), given back untouched."""
        found = sorted(self._by_row() if ctx is None else self._by_slot(ctx), key=lambda at: at[0])
        due = [(row, asked, place) for row, asked, place in found if 0 <= place < asked.tokens]
        if due:
            rows = [row for row, _, _ in due]
            bits = entropy_bits(logits if len(rows) == len(logits) else logits[rows])
            # No number is read here: on a GPU that would wait for the step to end.
            for (_, asked, place), value in zip(due, bits.unbind(), strict=True):
                asked.bits[place] = value
        return logits

    def _by_row(self) -> Iterator[tuple[int, _Asked, int]]:
        for row, asked in self._asked.items():
            yield row, asked, len(asked.written)

    def _by_slot(self, ctx: Any) -> Iterator[tuple[int, _Asked, int]]:
        lengths = ctx.seq_lens_upper_bound_np.tolist()
        for row, slot in enumerate(ctx.idx_mapping_np.tolist()):
            asked = self._asked.get(slot)
            if asked is not None:
                yield row, asked, lengths[row] - int(self._slots.prompt_len.np[slot])


class EntropyWorker:
    """What vLLM's worker gains."""

    def take_prerouter_entropies(self, names: list[str]) -> dict[str, Kept]:
        """(place, bits) of each name that has some here, no longer kept from now on."""
        taken: dict[str, Kept] = {}
        for name in names:
            if bits := _KEPT.pop(name, None):
                taken[name] = list(
                    zip(bits, torch.stack(list(bits.values())).tolist(), strict=True)
                )
        return taken


def _asked(parameters: Any, written: list[int]) -> _Asked | None:
    asked = (parameters.extra_args or {}).get(ASKED)
    if not asked:
        return None
    name, tokens = asked
    # Begun again, it goes on with what it has.
    return _Asked(tokens, written, _KEPT.setdefault(name, {}))
