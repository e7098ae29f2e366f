"""Networks that read texts, as their embeddings: (N, tokens, width)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .cases import Case, Probabilities, Scored
from .image_networks import as_a_user_has_it, origin
from .inputs import Arrays, Missing, Sources


class Encoder(nn.Module):
    """MiniLM-L6 without its table of word embeddings: the mean of its outputs, (N, tokens, 384) to (N, 384)."""

    def __init__(self) -> None:
        super().__init__()
        try:
            from transformers import BertConfig, BertModel
        except ImportError as error:
            raise Missing(str(error)) from error
        sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
        self.model = BertModel(BertConfig(vocab_size=1, **sizes), add_pooling_layer=False)

    def forward(self, x: Tensor) -> Tensor:
        """Mean over the tokens."""
        states: Tensor = self.model(inputs_embeds=x).last_hidden_state
        return states.mean(1)


def encoder(arrays: Arrays) -> nn.Module:
    """MiniLM-L6 with its weights."""
    found = Encoder()
    state = {name: torch.as_tensor(array).float() for name, array in arrays.items()}
    missing, unexpected = found.model.load_state_dict(state, strict=False)
    left_out = {"embeddings.word_embeddings.weight", "embeddings.position_ids"}
    if unexpected or not set(missing) <= left_out:
        raise ValueError(f"these are not MiniLM's weights: {sorted(set(missing) - left_out)} missing, {unexpected} unexpected")
    return found


class Similarity(nn.Module):
    """The cosine with the embedding of another text.

    Args:
        model: the encoder.
        other: (width,).
    """

    other: Tensor

    def __init__(self, model: nn.Module, other: Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("other", other)

    def forward(self, x: Tensor) -> Tensor:
        """(N, tokens, width) to (N,)."""
        return torch.cosine_similarity(self.model(x), self.other[None], dim=-1)


def minilm(count: int, sources: Sources) -> list[Case]:
    """MiniLM-L6: how similar a question is to the one most like it, from a text of padding."""
    arrays, pairs = sources.read("minilm"), sources.read("pairs")
    model = as_a_user_has_it(encoder(arrays))
    out = []
    for i, label in enumerate(pairs["labels"][:count]):
        score = Scored(Similarity(model, torch.as_tensor(pairs[f"other{i}"])).eval())
        x, baseline = (torch.as_tensor(pairs[f"{name}{i}"])[None] for name in ("x", "baseline"))
        out.append(Case("MiniLM-L6, similarity", origin(arrays), score, x, baseline, str(label)))
    return out


def trec(count: int, sources: Sources) -> list[Case]:
    """MiniLM-L6 with a logistic head that tells six types of question: the probability of the likeliest."""
    arrays, trained = sources.read("minilm"), sources.read("trec")
    head = nn.Linear(384, 6)
    head.load_state_dict({name: torch.as_tensor(trained[name]) for name in ("weight", "bias")})
    model = as_a_user_has_it(Probabilities(nn.Sequential(encoder(arrays), head)))
    out = []
    for i, label in enumerate(trained["labels"][:count]):
        x, baseline = (torch.as_tensor(trained[f"{name}{i}"])[None] for name in ("x", "baseline"))
        with torch.no_grad():
            top = int(model(x)[0].argmax())
        out.append(Case("MiniLM-L6, TREC head", origin(arrays), Scored(model, top), x, baseline, str(label)))
    return out


class Embedded(nn.Module):
    """A Hugging Face model that reads embeddings.

    Args:
        model: the model.
        last: take what it says at the last token.
    """

    def __init__(self, model: nn.Module, *, last: bool) -> None:
        super().__init__()
        self.model, self.last = model, last

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, d) to logits (N, classes)."""
        logits: Tensor = self.model(inputs_embeds=x).logits
        return logits[:, -1] if self.last else logits


def stories(count: int, sources: Sources) -> list[Case]:
    """stories260K, a Llama of 5 layers: the logit of the next token, from the mean embedding; the first token stays."""
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        raise Missing(str(error)) from error

    found = sources.read("stories")
    dim, hidden, layers, heads, groups, vocabulary, length = (int(size) for size in found.pop("sizes"))
    sizes = {"hidden_size": dim, "intermediate_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    config = LlamaConfig(
        **sizes,
        num_key_value_heads=groups,
        vocab_size=vocabulary,
        max_position_embeddings=length,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    state = {name: torch.as_tensor(array) for name, array in found.items() if name.startswith("model.")}
    model.load_state_dict(state | {"lm_head.weight": state["model.embed_tokens.weight"]})
    table = state["model.embed_tokens.weight"]
    network = as_a_user_has_it(Embedded(model, last=True))
    out = []
    for i, label in enumerate(found["labels"][:count]):
        x = table[torch.as_tensor(found[f"ids{i}"])][None].clone()
        baseline = table.mean(0).expand_as(x).clone()
        baseline[:, 0] = x[:, 0]
        with torch.no_grad():
            top = int(network(x)[0].argmax())
        out.append(Case("stories260K", "real", Scored(network, top), x, baseline, str(label)))
    return out


def bert(count: int, sources: Sources, length: int = 128) -> list[Case]:
    """BERT-base as a classifier, random weights spread as widely as trained ones."""
    try:
        from transformers import BertConfig, BertForSequenceClassification
    except ImportError as error:
        raise Missing(str(error)) from error

    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(num_labels=2, initializer_range=0.05)).eval()
    x = _tokens(model, count, length)
    network = as_a_user_has_it(Probabilities(Embedded(model, last=False)))
    return _random(f"BERT-base, {length} tokens", network, x, torch.zeros(1, *x.shape[1:]))


def gpt2(count: int, sources: Sources, length: int = 512) -> list[Case]:
    """A model of GPT-2's size: the logit of the likeliest next token."""
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError as error:
        raise Missing(str(error)) from error

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(initializer_range=0.05)).eval()
    x = _tokens(model, count, length)
    network = as_a_user_has_it(Embedded(model, last=True))
    return _random(f"GPT-2, {length} tokens", network, x, x[:1].mean((0, 1), keepdim=True).expand(1, *x.shape[1:]))


def _tokens(model: nn.Module, count: int, length: int) -> Tensor:
    words = model.config.vocab_size  # type: ignore[union-attr]
    ids = torch.randint(words, (count, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        vectors: Tensor = model.get_input_embeddings()(ids)  # type: ignore[operator]
    return vectors


def _random(name: str, model: nn.Module, x: Tensor, baseline: Tensor) -> list[Case]:
    """One case per row, with its own likeliest class or token."""
    with torch.no_grad():
        tops = [int(model(row[None])[0].argmax()) for row in x]
    return [
        Case(name, "random", Scored(model, top), row[None], baseline, f"tokens {i}")
        for i, (row, top) in enumerate(zip(x, tops, strict=True))
    ]
