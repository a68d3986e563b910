"""TRL's loss: each example's weighted where that is asked for, and on a CPU without the work that
TRL leaves to GPU kernels.

TRL 1.16 projects every position, prompts included, onto the vocabulary where it has no kernel, and
multiplies in float32 on the way back. On a CPU that is a third of a small model's time. Here only
the positions from the first completion token on are projected, in the precision of the rest.

Nor is padding computed: a large batch is no faster on a CPU than several small ones, so a batch
is read in parts whose examples are about equally long. The loss is that of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor
    from trl import SFTTrainer

IGNORED = -100
_ALIKE = 0.9
WEIGHT = "weight"
"""The column of a data set, and the key of a batch, with one number an example."""


def student_trainer(on_cpu: bool) -> type[SFTTrainer]:
    """SFTTrainer with the mean negative log-likelihood of a completion token.

    An example's weight multiplies the loss of each of its tokens; the mean is over tokens as ever,
    of all accumulated batches and all processes, so that weights of 1 change nothing at all.
    """
    import torch
    from trl import SFTTrainer

    class StudentTrainer(SFTTrainer):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            if WEIGHT in (self.train_dataset.column_names or ()):
                self.data_collator: Any = partial(_collate, self.data_collator)

        def _set_signature_columns_if_needed(self) -> None:
            super()._set_signature_columns_if_needed()
            if WEIGHT not in self._signature_columns:
                self._signature_columns.append(WEIGHT)

        def compute_loss(
            self,
            model: Any,
            inputs: dict[str, Any],
            return_outputs: bool = False,
            num_items_in_batch: Tensor | int | None = None,
        ) -> Any:
            inputs = dict(inputs)
            weights = inputs.pop(WEIGHT, None)
            plain = self.args.loss_type == "nll" and not self.args.label_smoothing_factor
            ours = on_cpu or weights is not None
            if return_outputs or not plain or self.aux_loss_enabled or not ours:
                return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
            # Processes that call the model unequally often would wait for each other for ever.
            apart = self.accelerator.num_processes == 1
            total, right, count = inputs["labels"].new_zeros(3).unbind()
            # One precision context for all parts, so that weights are rounded once a batch.
            with nullcontext() if self.is_deepspeed_enabled else self.accelerator.autocast():
                for part in _on_cpu(model, inputs, apart) if on_cpu else _fused(model, inputs):
                    terms = part.terms if weights is None else part.terms * weights[part.rows, None]
                    total = total + terms.sum()
                    right = right + part.top.sum()
                    count = count + part.learnt
            items = count if num_items_in_batch is None else num_items_in_batch
            loss = total / torch.as_tensor(items).clamp(min=1)
            if self.args.average_tokens_across_devices and num_items_in_batch is not None:
                loss = loss * self.accelerator.num_processes
            self._note_accuracy(torch.stack([right, count]))
            return loss

        def _note_accuracy(self, counts: Tensor) -> None:
            right, count = self.accelerator.gather(counts[None]).sum(0)
            mode = "train" if self.model.training else "eval"
            self._metrics[mode]["mean_token_accuracy"].append((right / count.clamp(min=1)).item())

    return StudentTrainer


class Part(NamedTuple):
    """Some rows of a batch: the negative log-likelihood of each token, (rows, tokens), 0 where none
    is learnt; whether the token was the likeliest; and how many are learnt."""

    rows: list[int]
    terms: Tensor
    top: Tensor
    learnt: Tensor


def _on_cpu(model: Any, inputs: dict[str, Any], apart: bool) -> Iterator[Part]:
    import torch

    if apart and inputs.keys() == {"input_ids", "attention_mask", "labels"}:
        lengths = inputs["attention_mask"].sum(1).tolist()
        parts = [
            (rows, {name: value[rows, : lengths[rows[0]]] for name, value in inputs.items()})
            for rows in alike(lengths)
        ]
    else:
        parts = [(list(range(len(inputs["labels"]))), inputs)]
    for rows, part in parts:
        labels = part["labels"]
        first = int((labels != IGNORED).any(dim=0).int().argmax())
        # The token before the first label predicts it.
        kept = labels.shape[1] - max(first - 1, 0)
        rest = {name: value for name, value in part.items() if name != "labels"}
        logits = model(**{**rest, "use_cache": False}, logits_to_keep=kept).logits[:, :-1]
        wanted = labels[:, 1 - kept :]
        terms = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), wanted.flatten(), ignore_index=IGNORED, reduction="none"
        )
        with torch.no_grad():
            top = (logits.argmax(-1) == wanted) & (wanted != IGNORED)
        yield Part(rows, terms.view_as(wanted), top, (wanted != IGNORED).sum())


def _fused(model: Any, inputs: dict[str, Any]) -> Iterator[Part]:
    """By the kernel that TRL puts into the model, which never holds all logits."""
    outputs = model(**{**inputs, "use_cache": False}, fused_lm_head=True)
    rows = list(range(len(inputs["labels"])))
    yield Part(rows, -outputs.log_probs, outputs.is_top1, outputs.label_mask.sum())


def alike(lengths: Sequence[int]) -> list[list[int]]:
    """Rows parted so that none is shorter than 9 tenths of the longest beside it, longest first."""
    parts: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if parts and lengths[row] >= _ALIKE * lengths[parts[-1][0]]:
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts


def _collate(
    collate: Callable[[Sequence[dict[str, Any]]], dict[str, Any]], rows: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    import torch

    batch = collate(rows)
    if WEIGHT in rows[0]:  # the validation examples have none
        batch[WEIGHT] = torch.tensor([row[WEIGHT] for row in rows], dtype=torch.float32)
    return batch
