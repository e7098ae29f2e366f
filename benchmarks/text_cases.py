"""Models and texts for :mod:`benchmarks.text_peers`, with scores and a reference by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

TEXTS = ("The film was not bad at all.", "A truly terrible and unbelievably boring story, badly told!", "Good morning, ladies.")
PROMPT, GOES_ON = "The capital of France is", " not bad and that of Italy"
PAIR = ("A man is playing the guitar on a stage.", "Someone plays a guitar in the park.")


@dataclass(frozen=True)
class Case:
    """A model, its tokenizer, and scores by hand.

    Attributes:
        model: in float32.
        tokenizer: its tokenizer.
        ids: (N, T) what is explained, one row per score.
        mask: (N, T).
        kept: (N, T), the same in the baseline.
        fill: the token of the baseline.
        score: from keywords of the model, for rows of the batch, to scores.
    """

    model: Any
    tokenizer: Any
    ids: Tensor
    mask: Tensor
    kept: Tensor
    fill: int
    score: Callable[[dict[str, Tensor], Tensor], Tensor]

    @property
    def start(self) -> Tensor:
        """The ids of the baseline."""
        return torch.where(self.kept, self.ids, self.fill)


def bert(tiny: bool, device: str) -> Case:
    import transformers as hf

    from tests.apps.text.tiny import wordpiece

    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64} if tiny else {}
    model = hf.BertForSequenceClassification(hf.BertConfig(num_labels=3, initializer_range=0.05, **size)).eval().to(device)
    tokenizer = wordpiece()
    found = tokenizer(list(TEXTS), padding=True, return_tensors="pt", return_special_tokens_mask=True).to(device)

    def score(given: dict[str, Tensor], rows: Tensor) -> Tensor:
        return model(**given).logits.softmax(1)[:, 1]

    kept = found["special_tokens_mask"].bool() | ~found["attention_mask"].bool()
    return Case(model, tokenizer, found["input_ids"], found["attention_mask"], kept, tokenizer.pad_token_id, score)


def gpt2(tiny: bool, device: str) -> Case:
    import transformers as hf

    from tests.apps.text.tiny import bytes_bpe

    torch.manual_seed(0)
    size = {"n_embd": 32, "n_layer": 2, "n_head": 2} if tiny else {}
    model = hf.GPT2LMHeadModel(hf.GPT2Config(initializer_range=0.05, bos_token_id=0, eos_token_id=2, **size)).eval().to(device)
    tokenizer = bytes_bpe("llama")
    tokenizer.model_max_length = 512
    prompt = tokenizer(PROMPT)["input_ids"]
    whole = tokenizer(PROMPT + GOES_ON, return_tensors="pt")["input_ids"].to(device)
    places = torch.arange(len(prompt), whole.shape[1], device=device)
    ids = whole[:, :-1].expand(len(places), -1)

    def score(given: dict[str, Tensor], rows: Tensor) -> Tensor:
        logits = model(**given, use_cache=False).logits[torch.arange(len(rows), device=device), places[rows] - 1]
        return logits.softmax(1)[torch.arange(len(rows), device=device), whole[0, places[rows]]]

    return Case(
        model,
        tokenizer,
        ids,
        torch.ones_like(ids),
        torch.isin(ids, torch.tensor([0, 2], device=device)),
        tokenizer.unk_token_id,
        score,
    )


def minilm(folder: str, device: str) -> Case:
    import transformers as hf

    hf.utils.logging.disable_progress_bar()
    model = hf.AutoModel.from_pretrained(folder, dtype=torch.float32).eval().to(device)
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    found = tokenizer(list(PAIR), padding=True, return_tensors="pt", return_special_tokens_mask=True).to(device)

    def vectors(given: dict[str, Tensor]) -> Tensor:
        mask = given["attention_mask"][..., None]
        return (model(**given).last_hidden_state * mask).sum(1) / mask.sum(1)

    with torch.no_grad():
        other = vectors({name: found[name] for name in ("input_ids", "attention_mask")}).flip(0)

    def score(given: dict[str, Tensor], rows: Tensor) -> Tensor:
        return torch.nn.functional.cosine_similarity(vectors(given), other[rows])

    kept = found["special_tokens_mask"].bool() | ~found["attention_mask"].bool()
    return Case(model, tokenizer, found["input_ids"], found["attention_mask"], kept, tokenizer.pad_token_id, score)


CASES: dict[str, Callable[[Any, str], Case]] = {"bert": bert, "gpt2": gpt2, "minilm": minilm}
WHO = {"bert": ("integrand", "captum"), "gpt2": ("integrand", "captum", "inseq"), "minilm": ("integrand", "captum")}
NAMES = {
    "bert": "BERT-base size, random weights, three texts in a padded batch, probability of a class",
    "gpt2": "GPT-2 size, random weights, every token of a continuation",
    "minilm": "MiniLM-L6, real weights, the similarity of two sentences",
}


def reference(case: Case, nodes: int = 16, parts: int = 16) -> np.ndarray:
    """(N, T) by hand, one row at a time: Gauss-Legendre on equal parts of the path."""
    table = case.model.get_input_embeddings()
    ends, starts = table(case.ids).detach(), table(case.start).detach()
    places, weights = np.polynomial.legendre.leggauss(nodes)
    out = np.zeros(tuple(case.ids.shape))
    for row in range(len(out)):
        rows, mask = torch.full((nodes,), row, device=ends.device), case.mask[row : row + 1].expand(nodes, -1)
        for part in range(parts):
            t = torch.tensor((part + (places + 1) / 2) / parts, dtype=torch.float32, device=ends.device)[:, None, None]
            point = (starts[row] + t * (ends[row] - starts[row])).requires_grad_()
            (slope,) = torch.autograd.grad(case.score({"inputs_embeds": point, "attention_mask": mask}, rows).sum(), point)
            weight = torch.tensor(weights / 2 / parts, device=ends.device)[:, None, None]
            out[row] += (weight * slope.double() * (ends[row] - starts[row]).double()).sum((0, 2)).cpu().numpy()
    return out
