"""What kind of operation a operation is."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from integrand.tracing.backward import Kind, kind_of, rectifies

from .traced_models import D, drawn, program_of

W = drawn(4, 4)
ROWS = torch.tensor([0, 2])
EXPECTED = {
    Kind.MOVE: {
        "view": lambda x: x.view(-1, 2, 2),
        "permute": lambda x: x.view(-1, 2, 2).permute(0, 2, 1),
        "transpose": lambda x: x.view(-1, 2, 2).transpose(1, 2),
        "slice": lambda x: x[:, 1:3],
        "select": lambda x: x[:, 1],
        "cat": lambda x: torch.cat([x, x], 1),
        "stack": lambda x: torch.stack([x, x * 2], 1),
        "split": lambda x: x.split(2, 1)[0],
        "unbind": lambda x: x.unbind(1)[0],
        "index": lambda x: x[:, ROWS],
        "gather": lambda x: x.gather(1, torch.zeros(len(x), 2, dtype=torch.long)),
        "index_select": lambda x: x.index_select(1, ROWS),
        "flip": lambda x: x.flip(1),
        "roll": lambda x: x.roll(1, 1),
        "expand": lambda x: x[:, :1].expand(-1, 3),
        "repeat": lambda x: x.repeat(1, 2),
        "constant_pad_nd": lambda x: F.pad(x, (1, 1), value=3.0),
    },
    Kind.LINEAR: {
        "mm": lambda x: x @ W,
        "addmm": lambda x: torch.addmm(W[0], x, W),
        "bmm": lambda x: x[:, None] @ W.expand(len(x), 4, 4).contiguous(),
        "convolution": lambda x: F.conv1d(x[:, None], W[:, None, :3]),
        "add": lambda x: x + x.flip(1),
        "sub": lambda x: x - W[0],
        "rsub": lambda x: 1 - x,
        "mul": lambda x: W[0] * x,
        "div": lambda x: x / W[0],
        "sum": lambda x: x.sum(1, keepdim=True),
        "mean": lambda x: x.mean(1, keepdim=True),
        "cumsum": lambda x: x.cumsum(1),
        "where": lambda x: torch.where(W[0] > 0, x, 2.0),
        "masked_fill": lambda x: x.masked_fill(W[0] > 0, 2.0),
        "avg_pool2d": lambda x: F.avg_pool2d(x.view(-1, 1, 2, 2), 2),
        "upsample_bilinear2d": lambda x: F.interpolate(x.view(-1, 1, 2, 2), (4, 4), mode="bilinear"),
        "neg": lambda x: -x,
    },
    Kind.POINTWISE: {
        "relu": F.relu,
        "gelu": F.gelu,
        "silu": F.silu,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "elu": F.elu,
        "leaky_relu": F.leaky_relu,
        "softplus": F.softplus,
        "mish": F.mish,
        "hardswish": F.hardswish,
        "exp": torch.exp,
        "pow": lambda x: x**3,
        "abs": torch.abs,
        "clamp": lambda x: x.clamp(-1, 1),
        "maximum": lambda x: torch.maximum(x, W[0]),
        "reciprocal": lambda x: 1 / (x + 9),
        "rsqrt": lambda x: (x + 9).rsqrt(),
        "floor": torch.floor,
    },
    Kind.PRODUCT: {
        "mul": lambda x: x * x,
        "bmm": lambda x: x[:, :, None] @ x[:, None],
        "div": lambda x: x / (x.exp() + 1),
    },
    Kind.MAX: {
        "amax": lambda x: x.amax(1, keepdim=True),
        "max": lambda x: x.max(1, keepdim=True).values,
        "min": lambda x: x.min(1, keepdim=True).values,
        "maximum": lambda x: torch.maximum(x, x.flip(1)),
        "max_pool2d_with_indices": lambda x: F.max_pool2d(x.view(-1, 1, 2, 2), 2),
    },
    Kind.SOFTMAX: {
        "_softmax": lambda x: x.softmax(1),
        "_log_softmax": lambda x: x.log_softmax(1),
        "logsumexp": lambda x: x.logsumexp(1, keepdim=True),
    },
    Kind.CUT: {
        "gt": lambda x: x * (x > 0),
        "detach": lambda x: x.detach() * x,
        "argmax": lambda x: x * x.argmax(1, keepdim=True),
    },
    Kind.CHOICE: {
        "where": lambda x: torch.where(x > 0, x, 0.0),
        "masked_fill": lambda x: x.masked_fill(x > 0, 0.0),
        "gather": lambda x: x.gather(1, x.argmax(1, keepdim=True)),
        "scatter": lambda x: torch.zeros_like(x).scatter(1, x.argsort(1), x),
        "index": lambda x: x[torch.arange(len(x)), x.argmax(1)][:, None],
    },
    Kind.UNKNOWN: {
        "sort": lambda x: x.sort(1).values,
        "topk": lambda x: x.topk(2).values,
        "cumprod": lambda x: x.cumprod(1),
        "prod": lambda x: x.prod(1, keepdim=True),
        "_fft_r2c": lambda x: torch.fft.rfft(x).abs(),
        "atan2": lambda x: torch.atan2(x, x.exp()),
        "div": lambda x: torch.div(x, 2.0, rounding_mode="floor"),
    },
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, cases in EXPECTED.items() for name in cases])
def test_kind(kind, name):
    x = drawn(3, 4)
    program = program_of(lambda x: EXPECTED[kind][name](x).reshape(len(x), -1).sum(1), x)
    values = program.run((x,))
    found = {kind_of(operation, values) for operation in program.operations if operation.name == name}
    assert found, [operation.name for operation in program.operations]
    assert kind in found


@pytest.mark.parametrize(
    ("rectifier", "expected"),
    [
        (F.relu, True),
        (F.relu6, True),
        (lambda x: x.clamp(min=0), True),
        (lambda x: x.clamp(0, 3), True),
        (lambda x: x.clamp(min=torch.zeros(4, dtype=D)), True),
        (lambda x: torch.maximum(x, torch.zeros_like(x)), True),
        (lambda x: torch.max(torch.tensor(0.0), x), True),
        (lambda x: F.threshold(x, 0, 0), True),
        (lambda x: F.hardtanh(x, 0, 5), True),
        (lambda x: x.clamp(min=0.1), False),
        (lambda x: x.clamp(max=0), False),
        (lambda x: torch.clamp(torch.zeros_like(x), min=x), False),
        (lambda x: torch.maximum(x, torch.ones_like(x)), False),
        (lambda x: torch.maximum(x, x * 0.1), False),
        (lambda x: torch.minimum(x, torch.zeros_like(x)), False),
        (lambda x: F.threshold(x, 0, 1), False),
        (F.hardtanh, False),
        (F.leaky_relu, False),
    ],
)
def test_rectifiers(rectifier, expected):
    program = program_of(lambda x: rectifier(x).sum(1), drawn(3, 4))
    assert any(rectifies(operation) for operation in program.operations) is expected
