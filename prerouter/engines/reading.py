"""Reading prompts in batches, and what they all begin with only once."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from prerouter.engines import packed_attention
from prerouter.engines.attention import is_plain_cache
from prerouter.engines.batches import Prefix

if TYPE_CHECKING:
    import torch

_WORTH_SHARING = 16
"""Tokens: a shorter common start costs more to copy into a batch than to read again."""


class PromptReader:
    """A causal model's forward passes. A router's prompts begin alike (instructions, the form of
    the reply): `share` reads that start once and every later batch goes on from it.

    What a model keeps of what it has read is copied only where it is plain keys and values of every
    token; a sliding window or a recurrent state reads each prompt whole. On a CPU prompts are read
    packed and not padded, by models whose attention allows it (`packed_attention`).
    """

    def __init__(self, model: Any, device: str) -> None:
        self._model = model
        self._device = device
        self._shared: list[int] = []
        self._cache: Any = None

    @property
    def shared_tokens(self) -> int:
        """Tokens that are read once, at the start of every prompt of the last `share`."""
        return len(self._shared)

    def share(self, prompts: Sequence[list[int]]) -> None:
        """Read what `prompts` have in common at their start, unless it is read already."""
        import torch

        if self._shared and all(self._continues(prompt) for prompt in prompts):
            return
        self._shared, self._cache = [], None
        common = _common_start(prompts) if len(prompts) > 1 else []
        if len(common) < _WORTH_SHARING:
            return
        ids = torch.tensor([common])
        with torch.inference_mode():
            cache = self._forward(ids, torch.ones_like(ids), None, 0)[0].past_key_values
        if is_plain_cache(cache):
            self._shared, self._cache = common, cache

    def prefill(self, prompts: Sequence[list[int]]) -> Prefix:
        """Read prompts; logits of the next token, shape (rows, vocabulary). What is kept of them is
        padded on the left."""
        import torch

        if not self._packs:
            output, mask = self._forward(*self._padded(prompts))
            return Prefix(output.past_key_values, mask, output.logits[:, -1])
        kept = packed_attention.Unpacked([*map(len, prompts)], self._shared_by(prompts))
        logits = []
        for some, output, _ in self._read_packed(prompts, keep=True):
            kept.add(output.past_key_values, some)
            logits.append(output.logits[0])
        return Prefix(kept.cache(), kept.mask(), torch.cat(logits))

    def _padded(self, prompts: Sequence[list[int]]) -> tuple[torch.Tensor, torch.Tensor, Any, int]:
        """Ids from where the shared start ends, the mask of all, the start's cache and length."""
        import torch

        shared = self._shared_by(prompts)
        width = max(map(len, prompts)) - shared
        # What stands in the padding is masked; any token of the vocabulary does.
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        mask = torch.zeros(len(prompts), shared + width, dtype=torch.long)
        mask[:, :shared] = 1
        for place, prompt in enumerate(prompts):
            rest = prompt[shared:]
            ids[place, width - len(rest) :] = torch.tensor(rest)
            mask[place, shared + width - len(rest) :] = 1
        cache = None
        if shared:
            cache = copy.deepcopy(self._cache)
            cache.batch_repeat_interleave(len(prompts))
        return ids, mask, cache, shared

    def extend(self, prefix: Prefix, ids: torch.Tensor) -> torch.Tensor:
        """Read more tokens after `prefix`; their logits, shape (rows, tokens, vocabulary)."""
        logits: torch.Tensor = self._read_on(prefix, ids).logits
        return logits

    def last_states(
        self, prompts: Sequence[list[int]], endings: list[list[int]]
    ) -> tuple[torch.Tensor, list[list[float]]]:
        """What each layer makes of a prompt's last token: float32, shape (rows, layers + 1, hidden
        size), the embedding first; and `score` for the `endings`, if any."""
        import torch

        with torch.inference_mode():
            if self._one_pass(endings):
                states, logits = [], []
                for _, output, lasts in self._read_packed(prompts, output_hidden_states=True):
                    layers = [layer[0, lasts] for layer in output.hidden_states]
                    states.append(torch.stack(layers, dim=1))
                    logits.append(output.logits[0])
                return torch.cat(states).float(), _first_scores(torch.cat(logits), endings)
            # All tokens before the last are read without keeping their states.
            prefix = self.prefill([prompt[:-1] for prompt in prompts])
            last = torch.tensor([prompt[-1:] for prompt in prompts], device=self._device)
            output = self._read_on(prefix, last, output_hidden_states=True)
            layers = [state[:, -1].float() for state in output.hidden_states]
            prefix.logits = output.logits[:, -1]
            scores = self._score_after(prefix, prompts, endings) if endings else [[]] * len(prompts)
            return torch.stack(layers, dim=1).cpu(), scores

    def _score_after(
        self, prefix: Prefix, prompts: Sequence[list[int]], endings: list[list[int]]
    ) -> list[list[float]]:
        import torch

        columns, count = [], len(prompts)
        for ending in endings:
            logits = prefix.logits[:, None]
            if len(ending) > 1:
                logits = torch.cat([logits, self._logits_of(prefix, prompts, ending[:-1])], dim=1)
            log_probabilities = torch.log_softmax(logits.float(), dim=-1)
            target = torch.tensor([ending] * count, device=self._device)[..., None]
            columns.append(log_probabilities.gather(-1, target).sum(dim=(1, 2)))
        rows: list[list[float]] = torch.stack(columns, dim=1).tolist()
        return rows

    def _logits_of(
        self, prefix: Prefix, prompts: Sequence[list[int]], given: list[int]
    ) -> torch.Tensor:
        """Logits after each of the tokens `given` behind the prompts, which `prefix` has read and
        holds unchanged: shape (prompts, tokens, vocabulary)."""
        import torch

        if not is_plain_cache(prefix.cache):
            # What has left a window, or went into a state, does not come back: all is read again.
            whole = [[*prompt, *given] for prompt in prompts]
            logits: torch.Tensor = self._forward(*self._padded(whole), keep=len(given))[0].logits
            return logits
        mask = prefix.mask
        logits = self.extend(prefix, torch.tensor([given] * len(prompts), device=self._device))
        prefix.cache.crop(-len(given))
        prefix.mask = mask
        return logits

    def _read_on(self, prefix: Prefix, ids: torch.Tensor, **settings: bool) -> Any:
        import torch

        seen = prefix.mask.sum(dim=-1, keepdim=True)
        prefix.mask = torch.cat([prefix.mask, torch.ones_like(ids)], dim=1)
        return self._model(
            input_ids=ids,
            attention_mask=prefix.mask,
            position_ids=seen + torch.arange(ids.shape[1], device=self._device),
            past_key_values=prefix.cache,
            use_cache=True,
            **settings,
        )

    def score(self, prompts: Sequence[list[int]], endings: list[list[int]]) -> list[list[float]]:
        """Natural log-probability of each ending after each prompt, shape (prompts, endings). A
        prompt is read once, and an ending of one token costs nothing more."""
        import torch

        firsts = sorted({ending[0] for ending in endings})
        with torch.inference_mode():
            if self._one_pass(endings):
                with self._head_watched() as seen:
                    read = [output.logits[0] for _, output, _ in self._read_packed(prompts)]
                logits = [
                    self._exact(raw, state[0], from_head[0], firsts)
                    for raw, (state, from_head) in zip(read, seen, strict=True)
                ]
                return _first_scores(torch.cat(logits), endings)
            with self._head_watched() as seen:
                prefix = self.prefill(prompts)
            state, from_head = seen[-1]
            prefix.logits = self._exact(prefix.logits, state[:, -1], from_head[:, -1], firsts)
            return self._score_after(prefix, prompts, endings)

    @contextlib.contextmanager
    def _head_watched(self) -> Iterator[list[tuple[torch.Tensor, torch.Tensor]]]:
        """What the head is given, and what it makes of it, at each call."""
        seen: list[tuple[torch.Tensor, torch.Tensor]] = []
        hook = self._model.get_output_embeddings().register_forward_hook(
            lambda module, given, output: seen.append((given[0], output))
        )
        try:
            yield seen
        finally:
            hook.remove()

    def _exact(
        self, logits: torch.Tensor, state: torch.Tensor, raw: torch.Tensor, tokens: list[int]
    ) -> torch.Tensor:
        """`logits` in float32, of which those of `tokens` are computed so: from the `state` of
        which the head made `raw`, shapes (rows, hidden size) and (rows, vocabulary).

        A bfloat16 logit has three digits: in a step of 1/16 most probabilities would be one of a
        few values, and a threshold on them could not be set to a rate.
        """
        import torch

        head = self._model.get_output_embeddings()
        exact = logits.float()
        # Where a model scales or caps what its last layer gives, that has the last word.
        if type(head) is torch.nn.Linear and head.bias is None and torch.equal(raw, logits):
            exact[:, tokens] = state.float() @ head.weight[tokens].float().T
        return exact

    @cached_property
    def _packs(self) -> bool:
        if self._device != "cpu" or not packed_attention.packs(self._model):
            return False
        # A model of more than its attention's code tells (masks of its own) is found out once.
        try:
            ((_, output, _),) = self._read_packed([[0], [0, 0]])
        except ValueError:
            return False
        return bool(output.logits.shape[1] == 2)

    def _one_pass(self, endings: list[list[int]]) -> bool:
        """Whether nothing is to be read after the prompts, and they can be read packed."""
        return all(len(ending) == 1 for ending in endings) and self._packs

    def _read_packed(
        self, prompts: Sequence[list[int]], keep: bool = False, **settings: bool
    ) -> Iterator[tuple[slice, Any, torch.Tensor]]:
        """Pack by pack, which prompts it holds; the model's output, with the logits after each of
        them, shape (1, prompts, vocabulary), and its cache, to `keep`; where their last tokens
        are."""
        import torch

        shared = self._shared_by(prompts)
        rests = [prompt[shared:] for prompt in prompts]
        for some in packed_attention.packs_of([len(rest) for rest in rests]):
            lengths = [len(rest) for rest in rests[some]]
            places = [torch.arange(shared, shared + length) for length in lengths]
            lasts = torch.tensor(lengths).cumsum(dim=0) - 1
            filling = (0, -sum(lengths) % packed_attention.MULTIPLE)
            ids = torch.tensor([token for rest in rests[some] for token in rest])
            with packed_attention.packed(self._model, lengths):
                output = self._model(
                    input_ids=torch.nn.functional.pad(ids, filling)[None],
                    position_ids=torch.nn.functional.pad(torch.cat(places), filling)[None],
                    past_key_values=copy.deepcopy(self._cache) if shared else None,
                    use_cache=keep or shared > 0,
                    logits_to_keep=lasts,
                    **settings,
                )
            yield some, output, lasts

    def _forward(
        self, ids: torch.Tensor, mask: torch.Tensor, cache: Any, shared: int, keep: int = 1
    ) -> tuple[Any, torch.Tensor]:
        """The model's output, with the logits of the last `keep` tokens, and the mask where it
        was used."""
        mask = mask.to(self._device)
        output = self._model(
            input_ids=ids.to(self._device),
            attention_mask=mask,
            position_ids=(mask.cumsum(dim=-1) - 1).clamp(min=0)[:, shared:],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=keep,
        )
        return output, mask

    def _shared_by(self, prompts: Sequence[list[int]]) -> int:
        return len(self._shared) if all(map(self._continues, prompts)) else 0

    def _continues(self, prompt: list[int]) -> bool:
        # At least one token has to be read: the next one's logits come from it.
        return len(prompt) > len(self._shared) and prompt[: len(self._shared)] == self._shared


def _first_scores(logits: torch.Tensor, endings: list[list[int]]) -> list[list[float]]:
    """Log-probability of each ending's one token, shape (prompts, endings)."""
    import torch

    scores = torch.log_softmax(logits.float(), dim=-1)[:, [ending[0] for ending in endings]]
    rows: list[list[float]] = scores.tolist()
    return rows


def _common_start(prompts: Sequence[list[int]]) -> list[int]:
    # The lowest and the highest in order differ as early as any two do.
    low, high = min(prompts), max(prompts)
    count = 0
    for mine, other in zip(low[:-1], high[:-1], strict=False):
        if mine != other:
            break
        count += 1
    return low[: min(count, min(map(len, prompts)) - 1)]
