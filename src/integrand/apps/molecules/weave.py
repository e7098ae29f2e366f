"""The Weave network of Kearnes et al., "Molecular graph convolutions: moving beyond fingerprints" (2016)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...errors import FileError, MissingExtraError, OptionError
from ...files import replacing
from ...loading import shipped
from ...schema import parsed
from ...tensor_files import read_safetensors, shapes_without_memory
from ...words import first_line, shown
from .molgraph import ATOM_FEATURES, PAIR_FEATURES, Features

WeaveName = Literal["weave-w1n2", "weave-w2n2", "weave-w1n2-simple", "weave-w2n2-simple"]
NAMES: tuple[WeaveName, ...] = ("weave-w1n2", "weave-w2n2", "weave-w1n2-simple", "weave-w2n2-simple")

MEMBERS = 11
"""The number of Gaussians in a histogram."""

MOST_MODULES = 64
"""The most modules, and the most dense layers, that a file may ask for; the paper has 2."""


class WeaveModule(nn.Module):
    """A Weave module: new features of atoms and of pairs from those of both.

    Atoms get their own features and the sum over their pairs; pairs get their own features and those of their two atoms, in
    both orders, so that the order does not matter.

    Args:
        atoms: features that come in.
        pairs: features that come in.
        hidden: features that go out, of atoms and of pairs.
        updates_pairs: whether pairs go out too; nobody reads those of the last module, which leaves them as they are.
    """

    def __init__(self, atoms: int, pairs: int, hidden: int, *, updates_pairs: bool) -> None:
        super().__init__()
        self.atom_to_atom = nn.Linear(atoms, hidden)
        self.pair_to_atom = nn.Linear(pairs, hidden)
        self.atom_mix = nn.Linear(2 * hidden, hidden)
        self.updates_pairs = updates_pairs
        if updates_pairs:
            self.atom_to_pair = nn.Linear(atoms, 2 * hidden, bias=False)  # what it says as the first atom, and as the second
            self.atom_to_pair_bias = nn.Parameter(torch.zeros(hidden))
            self.pair_to_pair = nn.Linear(pairs, hidden)
            self.pair_mix = nn.Linear(2 * hidden, hidden)

    def forward(self, atoms: Tensor, pairs: Tensor, ends: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        """Compute new features (B, N, hidden) and (B, P, hidden) from those of atoms and pairs."""
        sent = torch.relu(self.pair_to_atom(pairs)) * near.unsqueeze(2)
        received = _scattered(sent, ends, atoms.shape[1])
        mixed = torch.relu(self.atom_mix(torch.cat([torch.relu(self.atom_to_atom(atoms)), received], 2)))
        return mixed, self._pairs(atoms, pairs, ends) if self.updates_pairs else pairs

    def _pairs(self, atoms: Tensor, pairs: Tensor, ends: Tensor) -> Tensor:
        said = self.atom_to_pair(atoms)
        first, second = (_gathered(said, ends[..., end]).chunk(2, 2) for end in (0, 1))
        one = torch.relu(first[0] + second[1] + self.atom_to_pair_bias)
        other = torch.relu(second[0] + first[1] + self.atom_to_pair_bias)
        out: Tensor = torch.relu(self.pair_mix(torch.cat([one + other, torch.relu(self.pair_to_pair(pairs))], 2)))
        return out


class MaskedNorm(nn.Module):
    """Batch-norm without scale and shift over the real atoms; in eval mode a fixed linear map."""

    mean: Tensor
    variance: Tensor

    def __init__(self, width: int, momentum: float = 0.05) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Normalise (B, N, width) over the atoms of a mask (B, N)."""
        mean, variance = self.mean, self.variance
        if self.training:
            weight = mask.unsqueeze(2) / mask.sum()
            mean = (x * weight).sum((0, 1))
            variance = ((x - mean).square() * weight).sum((0, 1))
            with torch.no_grad():
                self.mean.lerp_(mean, self.momentum)
                self.variance.lerp_(variance, self.momentum)
        return (x - mean) * torch.rsqrt(variance + 1e-5)


class Histogram(nn.Module):
    """Fuzzy histograms: the membership of each number in eleven Gaussians; the memberships of a number sum to one.

    The centres are quantiles of the unit normal distribution, and a width is half the way to the next centre inwards.
    """

    centres: Tensor
    sharpness: Tensor

    def __init__(self) -> None:
        super().__init__()
        shares = torch.linspace(0.05, 0.95, MEMBERS, dtype=torch.float64, device="cpu").tolist()
        centres = torch.tensor([NormalDist().inv_cdf(share) for share in shares], dtype=torch.float64)
        gaps, middle = centres.diff() / 2, MEMBERS // 2
        widths = torch.cat([gaps[:middle], gaps[middle : middle + 1], gaps[middle:]])
        self.register_buffer("centres", centres.float()[:, None], persistent=False)
        self.register_buffer("sharpness", widths.float()[:, None] ** -2 / -2, persistent=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """The histogram of each molecule, (B, 11 * width), from atoms (B, N, width) and the mask of real ones (B, N)."""
        far = x.unsqueeze(2) - self.centres
        belonging = torch.softmax(far * far * self.sharpness, 2)  # a softmax over an inner dimension is fast on every device
        return torch.bmm(mask.unsqueeze(1).to(x.dtype), belonging.flatten(2)).squeeze(1)


class Weave(nn.Module):
    """The network: Weave modules, a last convolution, histograms summed over the atoms, dense layers, one logit per task.

    Args:
        features: which features it reads.
        modules: 1 (W1N2: an atom sees its own features and pairs, never another atom's) or more (W2N2).
        hidden: features of atoms and pairs between modules.
        depth: features of atoms behind the last convolution, of which histograms are made.
        dense: widths of the layers on the molecule.
        tasks: how many numbers come out.
        dropout: the share left out in training behind each dense layer.
    """

    def __init__(
        self,
        features: Features = "full",
        modules: int = 2,
        *,
        hidden: int = 64,
        depth: int = 128,
        dense: Sequence[int] = (256, 64),
        tasks: int = 1,
        dropout: float = 0.25,
    ) -> None:
        super().__init__()
        self.features = features
        self.settings: dict[str, Any] = {"features": features, "modules": modules, "hidden": hidden, "depth": depth}
        self.settings |= {"dense": list(dense), "tasks": tasks, "dropout": dropout}
        widths = [(len(ATOM_FEATURES[features]), len(PAIR_FEATURES[features])), *[(hidden, hidden)] * (modules - 1)]
        self.weave = nn.ModuleList(
            WeaveModule(atoms, pairs, hidden, updates_pairs=i + 1 < modules) for i, (atoms, pairs) in enumerate(widths)
        )
        self.last = nn.Linear(hidden, depth)
        self.norm = MaskedNorm(depth)
        self.histogram = Histogram()
        layers: list[nn.Module] = []
        for wide, narrow in zip([depth * MEMBERS, *dense], dense, strict=False):
            layers += [nn.Linear(wide, narrow), nn.BatchNorm1d(narrow), nn.ReLU(), nn.Dropout(dropout)]
        self.head = nn.Sequential(*layers, nn.Linear([depth * MEMBERS, *dense][-1], tasks))

    def embed(self, atoms: Tensor, pairs: Tensor, ends: Tensor, there: Tensor, near: Tensor) -> Tensor:
        """The features of each atom before the histograms, (B, N, depth)."""
        for module in self.weave:
            atoms, pairs = module(atoms, pairs, ends, near)
        out: Tensor = self.norm(torch.tanh(self.last(atoms)), there)
        return out

    def forward(self, atoms: Tensor, pairs: Tensor, ends: Tensor, there: Tensor, near: Tensor) -> Tensor:
        """Logits, (B, tasks), from the tensors of a :class:`~integrand.apps.molecules.molgraph.Batch`."""
        out: Tensor = self.head(self.histogram(self.embed(atoms, pairs, ends, there, near), there))
        return out


def load_weave(name: WeaveName = "weave-w2n2", device: torch.device | str | None = None) -> Weave:
    """A network trained on PCBA-588342 (see the card ``molecules.md`` in ``integrand-models``), in eval mode, frozen.

    Args:
        name: ``weave-w1n2`` or ``weave-w2n2``, or the same with ``-simple`` features.
        device: where to; by default a GPU where torch finds one.
    """
    if name not in NAMES:
        raise OptionError(f"got the network {name!r}; expected one of {', '.join(NAMES)}.")
    path = shipped(f"{name}.safetensors", "loading a Weave network", extra="molecules")
    return read_weave(path).to(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def read_weave(path: Path) -> Weave:
    """Load a network, in eval mode and frozen, from a file written by :func:`write_weave`."""
    weights, header = read_safetensors(path, what="a Weave network")
    settings = parsed(header.get("settings", ""), what=shown(str(path)))
    try:
        if settings["modules"] > MOST_MODULES or len(settings["dense"]) > MOST_MODULES:
            raise ValueError("too many modules")
        if shapes_without_memory(lambda: Weave(**settings)) != {key: value.shape for key, value in weights.items()}:
            raise ValueError("its weights are not those that its settings ask for")
        net = Weave(**settings)
        net.load_state_dict(weights)  # copies float16 into float32
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        said = first_line(error)
        raise FileError(f"{shown(str(path))} holds no Weave network ({said}); expected a file of write_weave.") from error
    return net.eval().requires_grad_(False)


def write_weave(net: Weave, path: Path, **header: str) -> None:
    """Save a network: matrices in float16, vectors in float32."""
    try:
        from safetensors.torch import save_file
    except ImportError:
        raise MissingExtraError("safetensors", "files", "saving a Weave network") from None
    halved = {key: (value.half() if value.dim() > 1 else value).cpu().contiguous() for key, value in net.state_dict().items()}
    with replacing(path) as part:
        save_file(halved, str(part), metadata={"settings": json.dumps(net.settings), **header})


def _scattered(sent: Tensor, ends: Tensor, atoms: int) -> Tensor:
    """Sum over each atom's pairs, from (B, P, hidden) to (B, atoms, hidden)."""
    batch, _, width = sent.shape
    places = (ends + atoms * torch.arange(batch, device=ends.device)[:, None, None]).flatten()
    nothing = sent.new_zeros(batch * atoms, width)
    return nothing.index_add(0, places, sent.repeat_interleave(2, 1).flatten(0, 1)).view(batch, atoms, width)


def _gathered(atoms: Tensor, end: Tensor) -> Tensor:
    """The features of the atom at one end of each pair, from (B, N, width) and (B, P) to (B, P, width)."""
    return atoms.gather(1, end.unsqueeze(2).expand(-1, -1, atoms.shape[2]))
