"""Ordinary models: DeepLift is complete on all of them, LRP keeps the score, batches and chunks change nothing."""

from __future__ import annotations

import copy
import dataclasses
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from integrand.errors import OperationError
from integrand.methods import LRP, DeepLift, Gradient, GuidedBackprop

from .shared import OPERATED, REVEAL, D, drawn, settled


def sequential(*parts):
    return lambda: copy.deepcopy(nn.Sequential(*parts))


class Attention(nn.Module):
    def __init__(self, mask=None, **options):
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True, **options)
        self.out, self.mask = nn.Linear(8, 3), mask

    def forward(self, x):
        return self.out(self.attend(x, x, x, attn_mask=self.mask, need_weights=self.mask is None)[0].mean(1))


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.inner = kind(4, 5, batch_first=True, **options)
        self.out = nn.Linear(10 if options.get("bidirectional") else 5, 3)

    def forward(self, x):
        return self.out(self.inner(x)[0][:, -1])


class Block(nn.Module):
    """A residual block as everyone writes it."""

    def __init__(self):
        super().__init__()
        self.one, self.norm1 = nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.two, self.norm2 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.skip, self.out = nn.Conv2d(2, 4, 1), nn.Linear(4, 3)

    def forward(self, x):
        h = F.relu(self.norm1(self.one(x)), inplace=True)
        h = self.norm2(self.two(h))
        h += self.skip(x)
        return self.out(torch.flatten(F.adaptive_avg_pool2d(F.relu(h), 1), 1))


def conv(*middle):
    def make():
        body = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), *copy.deepcopy(middle), nn.Flatten()).eval()
        with torch.no_grad():
            width = body(torch.zeros(1, 2, 8, 8)).shape[1]
        return nn.Sequential(body, nn.Linear(width, 3))

    return make


def dense(*middle):
    return sequential(nn.Linear(4, 6), *middle, nn.Linear(6, 3))


IMAGE, ROW, SERIES, TOKENS = (2, 8, 8), (4,), (3, 4), (5, 8)
CAUSAL = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
ACTIVATIONS = [
    nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.ELU(), nn.SELU(), nn.CELU(), nn.LeakyReLU(), nn.PReLU(), nn.Hardswish(),
    nn.Hardsigmoid(), nn.Mish(), nn.Softplus(), nn.LogSigmoid(), nn.Sigmoid(), nn.Tanh(), nn.ReLU6(), nn.Hardtanh(),
    nn.Softsign(), nn.Softshrink(), nn.RReLU(), nn.Tanhshrink(),
]  # fmt: skip
MODELS = {f"{i} {type(a).__name__}": (dense(a), ROW) for i, a in enumerate(ACTIVATIONS)} | {
    "batch norm 1d": (dense(nn.BatchNorm1d(6), nn.ReLU()), ROW),
    "batch norm before": (sequential(nn.BatchNorm1d(4), nn.Linear(4, 6), nn.ReLU(), nn.BatchNorm1d(6), nn.Linear(6, 3)), ROW),
    "layer norm": (dense(nn.LayerNorm(6), nn.ReLU()), ROW),
    "rms norm": (dense(nn.RMSNorm(6), nn.ReLU()), ROW),
    "dropout": (dense(nn.Dropout(), nn.ReLU()), ROW),
    "batch norm 2d": (conv(nn.BatchNorm2d(4), nn.ReLU()), IMAGE),
    "group norm": (conv(nn.GroupNorm(2, 4), nn.ReLU()), IMAGE),
    "instance norm": (conv(nn.InstanceNorm2d(4, affine=True), nn.ReLU()), IMAGE),
    "max pool": (conv(nn.ReLU(), nn.MaxPool2d(2)), IMAGE),
    "max pool, overlapping": (conv(nn.Tanh(), nn.MaxPool2d(3, 2, 1)), IMAGE),
    "average pool": (conv(nn.ReLU(), nn.AvgPool2d(3, 2, 1)), IMAGE),
    "adaptive average": (conv(nn.ReLU(), nn.AdaptiveAvgPool2d(3)), IMAGE),
    "adaptive max": (conv(nn.ReLU(), nn.AdaptiveMaxPool2d(3)), IMAGE),
    "upsampling": (conv(nn.ReLU(), nn.Upsample(scale_factor=2, mode="bilinear")), IMAGE),
    "transposed": (conv(nn.Tanh(), nn.ConvTranspose2d(4, 3, 3, stride=2)), IMAGE),
    "pads": (conv(nn.ReflectionPad2d(1), nn.ZeroPad2d(1), nn.ReLU(), nn.PixelShuffle(2)), IMAGE),
    "residual": (Block, IMAGE),
    "glu": (sequential(nn.Linear(4, 12), nn.GLU(), nn.Linear(6, 3)), ROW),
    "attention": (Attention, TOKENS),
    "masked attention": (lambda: Attention(CAUSAL), TOKENS),
    "encoder layer": (
        sequential(nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), nn.Flatten(), nn.Linear(40, 3)),
        TOKENS,
    ),
    "encoder": (
        lambda: nn.Sequential(
            nn.TransformerEncoder(
                nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, activation="gelu", norm_first=True),
                2,
                enable_nested_tensor=False,
            ),
            nn.Flatten(),
            nn.Linear(40, 3),
        ),
        TOKENS,
    ),
    "lstm": (lambda: Recurrent(nn.LSTM), SERIES),
    "lstm of two layers": (lambda: Recurrent(nn.LSTM, num_layers=2), SERIES),
    "lstm both ways": (lambda: Recurrent(nn.LSTM, bidirectional=True), SERIES),
    "gru": (lambda: Recurrent(nn.GRU, num_layers=2, bidirectional=True), SERIES),
    "rnn": (lambda: Recurrent(nn.RNN, nonlinearity="relu"), SERIES),
}
SOFT = {
    "softmax inside": (dense(nn.Softmax(-1)), ROW),
    "softmax at the end": (sequential(nn.Linear(4, 3), nn.Softmax(-1)), ROW),
    "log softmax": (sequential(nn.Linear(4, 3), nn.LogSoftmax(-1)), ROW),
}
EPS = {D: 2e-14, torch.float32: 1e-5}


@pytest.mark.parametrize("model", MODELS | SOFT)
def test_deeplift_is_complete(model, pytestconfig):
    """In both precisions; in brief, by turns, in one of them."""
    torch.manual_seed(0)
    make, shape = (MODELS | SOFT)[model]
    net = settled(make())
    dtypes = list(EPS)
    for dtype in [dtypes[list(MODELS | SOFT).index(model) % 2]] if pytestconfig.getoption("--brief") else dtypes:
        x, base = drawn(2, *shape).to(dtype), drawn(2, *shape, seed=2).to(dtype)
        for method, start in itertools.product((DeepLift(), REVEAL), (base, None)):
            result = method(net.to(dtype), x, start, target=1)
            assert result.values.any()
            assert all(abs(one.residual) <= EPS[dtype] * max(1, one.magnitude) for one in result.certificate), (
                result.certificate
            )


@pytest.mark.parametrize("model", MODELS)
def test_lrp_keeps_the_score(model):
    torch.manual_seed(0)
    make, shape = MODELS[model]
    net, x = settled(make()), drawn(2, *shape)
    for dtype, tol in ((D, 1e-6), (torch.float32, 1e-3)):
        result = LRP()(net.to(dtype), x.to(dtype), target=1)
        for one, values in zip(result.certificate, result.values, strict=True):
            assert float(values.sum()) == pytest.approx(one.score, abs=tol * max(1, one.magnitude))


BATCHED = ["batch norm 2d", "residual", "encoder layer", "lstm both ways", "max pool, overlapping"]


@pytest.mark.parametrize("model", BATCHED)
def test_a_batch_is_its_examples_and_chunks_change_nothing(model, pytestconfig):
    """With every method; in brief, by turns, with every second one."""
    torch.manual_seed(0)
    make, shape = MODELS[model]
    net, x, base = settled(make()), drawn(3, *shape), drawn(3, *shape, seed=2)
    methods = list(OPERATED.values())
    for method in methods[BATCHED.index(model) % 2 :: 2] if pytestconfig.getoption("--brief") else methods:
        check_batch(method, net, x, base)


def check_batch(method, net, x, base):
    if "others" in {f.name for f in dataclasses.fields(method)}:
        method = dataclasses.replace(method, others="gradient")
    whole = method(net, x, base, target=1).values
    size = 1e-11 * max(1, float(whole.abs().max()))
    for i in range(3):
        torch.testing.assert_close(
            method(net, x[i : i + 1], base[i : i + 1], target=1).values[0], whole[i], rtol=1e-9, atol=size
        )
    for options in ({"chunk": 1}, {"chunk": 2}, {"memory": 1}):
        torch.testing.assert_close(method(net, x, base, target=1, **options).values, whole, rtol=1e-9, atol=size)


# Plain functions

FUNCTIONS = {
    "einsum": lambda x: torch.einsum("bi,ij,bj->b", x, drawn(4, 4), x),
    "cat": lambda x: torch.cat([x, 2 * x], 1).tanh().sum(1),
    "stack": lambda x: torch.stack([x, x.tanh()], 2).flatten(1).relu().sum(1),
    "split": lambda x: sum((i + 1) * part.relu().sum(1) for i, part in enumerate(x.split([1, 3], 1))),
    "chunk": lambda x: x.chunk(2, 1)[0].tanh().sum(1) * x.chunk(2, 1)[1].sum(1),
    "index": lambda x: x[:, [0, 2, 2]].relu().sum(1),
    "gather": lambda x: x.gather(1, torch.tensor([[0, 1]]).expand(len(x), 2)).relu().sum(1),
    "where": lambda x: torch.where(torch.arange(4) > 1, x, torch.zeros_like(x)).tanh().sum(1),
    "masked_fill": lambda x: x.masked_fill(torch.arange(4) > 1, 0.0).tanh().sum(1),
    "masked scores": lambda x: (x.masked_fill(torch.arange(4) > 2, -torch.inf).softmax(1) * x).sum(1),
    "norm": lambda x: F.normalize(x).relu().sum(1),
    "cosine": lambda x: F.cosine_similarity(x, x.square() + 1, dim=1),
    "cumsum": lambda x: x.cumsum(1).relu().sum(1),
    "broadcast": lambda x: torch.maximum(x[:, :, None] * torch.tensor([1.0, -2.0]), torch.zeros(2)).sum((1, 2)),
    "power": lambda x: (x**3 + 2**x).sum(1),
    "one number": lambda x: (x[:, 0] * 3).tanh(),
    "outer": lambda x: torch.relu(x[:, :, None] * x[:, None]).sum((1, 2)),
    "addmm": lambda x: torch.addmm(x @ drawn(4, 2), x, drawn(4, 2, seed=3), beta=2.0, alpha=0.5).relu().sum(1),
    "written": lambda x: _written(x),
    "large constants": lambda x: ((x + 1e6) * 1e3).sum(1) / 1e8,
}


def _written(x):
    out = torch.zeros(len(x), 3, dtype=D)
    out[:, 0] = x[:, 1] * x[:, 2]
    out[:, 1:].add_(x[:, 2:]).relu_()
    return out.sum(1)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_plain_functions(function):
    score, x, base = FUNCTIONS[function], drawn(3, 4), drawn(3, 4, seed=2)
    for method in (DeepLift(), REVEAL):
        result = method(score, x, base)
        assert all(abs(one.residual) < 1e-9 * max(1, one.magnitude) for one in result.certificate), result.certificate
    kept = LRP()(score, x, base)
    for one, values in zip(kept.certificate, kept.values, strict=True):
        assert float(values.sum()) == pytest.approx(one.score, abs=1e-6 * max(1, one.magnitude))
    plain = GuidedBackprop(others="gradient")(score, x, base)
    if "relu" not in function and function in ("einsum", "cat", "chunk", "power", "cosine", "one number", "masked scores"):
        torch.testing.assert_close(plain.values, Gradient()(score, x, base).values)


# Hugging Face


def tiny(name):
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
    torch.manual_seed(0)
    if name == "bert":
        config = transformers.BertConfig(**sizes, max_position_embeddings=16, num_labels=3)
        return transformers.BertForSequenceClassification(config), "bert.embeddings.word_embeddings", {}, 1
    if name == "distilbert":
        config = transformers.DistilBertConfig(vocab_size=40, dim=8, n_layers=2, n_heads=2, hidden_dim=12)
        return transformers.DistilBertForSequenceClassification(config), "distilbert.embeddings", {}, 1
    if name == "gpt2":
        config = transformers.GPT2Config(vocab_size=40, n_embd=8, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=1)
        return transformers.GPT2LMHeadModel(config), "transformer.wte", {}, (3, 7)
    if name == "llama":
        config = transformers.LlamaConfig(**sizes, num_key_value_heads=1, max_position_embeddings=16)
        return transformers.LlamaForCausalLM(config), "model.embed_tokens", {}, (3, 7)
    config = transformers.T5Config(
        vocab_size=40, d_model=8, d_kv=4, d_ff=12, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    decoded = {"decoder_input_ids": torch.tensor([[0, 3]] * 2)}
    return transformers.T5ForConditionalGeneration(config), "encoder.embed_tokens", decoded, (1, 7)


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("model", ["bert", "distilbert", "gpt2", "llama", "t5"])
def test_hugging_face(model, masked):
    net, layer, kwargs, target = tiny(model)
    net = net.to(D).eval()
    ids = torch.tensor([[3, 9, 4, 7], [5, 6, 2, 1]])
    if masked:
        kwargs = kwargs | {"attention_mask": torch.tensor([[1, 1, 1, 1], [0, 1, 1, 1] if model == "gpt2" else [1, 1, 1, 0]])}
        target = target if model != "llama" else (2, 7)
    options = {"layer": layer, "kwargs": kwargs, "target": target}
    # The norms of Llama and T5 compute in float32 whatever the model is in.
    tol = 1e-6 if model in ("llama", "t5") else 1e-13
    for method in (DeepLift(), REVEAL):
        result = method(net, ids, **options)
        assert result.values.any()
        assert all(abs(one.residual) < tol * max(1, one.magnitude) for one in result.certificate), result.certificate
    kept = LRP()(net, ids, **options)
    for one, values in zip(kept.certificate, kept.values, strict=True):
        assert float(values.sum()) == pytest.approx(one.score, abs=1e-5 * max(1, one.magnitude))
    plain = GuidedBackprop(others="gradient")(net, ids, **options)
    if model in ("bert", "gpt2", "llama"):  # no rectifier
        torch.testing.assert_close(plain.values, Gradient()(net, ids, **options).values, rtol=1e-4, atol=1e-6)
        with pytest.raises(OperationError, match=r"'(gelu|tanh|silu)'"):
            GuidedBackprop()(net, ids, **options)
