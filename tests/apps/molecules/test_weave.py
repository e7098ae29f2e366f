"""The Weave networks: a plain reference, padding, order, completeness, what one module cannot see, and the card."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from rdkit import Chem
from torch import Tensor

import integrand as ig
from integrand.apps.molecules import weave as _weave
from integrand.apps.molecules.molgraph import Batch, Graph, collate, graph, parse
from integrand.apps.molecules.weave import NAMES, Histogram, Weave, load_weave, read_weave, write_weave
from integrand.errors import OptionError
from integrand.loading import shipped

Data = Callable[[str], Path]
TRAINING = Path(__file__).resolve().parents[3] / "training"
SMILES = ["CC(=O)Oc1ccccc1C(=O)O", "[Cl-]", "C[N+](=O)[O-]", "[Na+].CC(=O)[O-]", "Clc1ccc(F)cc1", "N[C@@H](C)C(=O)O"]


@pytest.fixture(scope="module")
def training() -> ModuleType:
    sys.path.insert(0, str(TRAINING))
    try:
        import weave
    finally:
        sys.path.remove(str(TRAINING))
    return weave


def double(name: str) -> Weave:
    return load_weave(name, "cpu").double()  # type: ignore[arg-type]


def batch_of(smiles: list[str], net: Weave) -> Batch:
    batch = collate([graph(parse(one), net.features) for one in smiles])
    kind = next(net.parameters()).dtype
    return Batch(batch.atoms.to(kind), batch.pairs.to(kind), *batch.tensors[2:])


TOL = 0.003


def attributed(net: Weave, one: Graph) -> tuple[Tensor, Tensor, float]:
    """Of one molecule: values of atoms and of pairs, and how far F(x) is from F(0)."""
    batch = collate([one])
    atoms, pairs, *rest = batch.tensors
    groups = (
        torch.arange(atoms.shape[1])[:, None].expand(atoms.shape[1:]),
        (atoms.shape[1] + torch.arange(pairs.shape[1]))[:, None].expand(pairs.shape[1:]),
    )
    given = (atoms.double(), pairs.double())
    result = ig.integrated_gradients(net, given, args=rest, groups=groups, target=0, tol=TOL)
    change = net(*given, *rest) - net(*(value * 0 for value in given), *rest)
    values = result.values[0]
    return values[: atoms.shape[1]], values[atoms.shape[1] :][: len(one.pairs)], change.item()


def test_histograms_against_their_definition() -> None:
    """Centres at the quantiles .05, .14, ..., .95 of the normal distribution; widths half the gap inwards; sum one."""
    found = torch.randn(2, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2
    centres = np.array([-1.6449, -1.0803, -0.7388, -0.4677, -0.2275, 0, 0.2275, 0.4677, 0.7388, 1.0803, 1.6449])
    widths = np.array([0.2823, 0.1707, 0.1356, 0.1201, 0.1138, 0.1138, 0.1138, 0.1201, 0.1356, 0.1707, 0.2823])
    there = torch.tensor([[True] * 5, [True] * 2 + [False] * 3])
    member = np.exp(-(((found.numpy()[:, :, None] - centres[:, None]) / widths[:, None]) ** 2) / 2)
    member /= member.sum(2, keepdims=True)
    expected = (member * there.numpy()[:, :, None, None]).sum(1).reshape(2, -1)
    assert np.abs(Histogram().double()(found, there).numpy() - expected).max() < 0.02


def test_one_module_against_loops() -> None:
    """Every atom and every pair on its own, in the words of the paper."""
    torch.manual_seed(0)
    module = _weave.WeaveModule(4, 3, 5, updates_pairs=True).double()
    atoms, pairs = torch.randn(1, 4, 4).double(), torch.randn(1, 3, 3).double()
    ends = torch.tensor([[[0, 1], [1, 2], [0, 2]]])
    near = torch.ones(1, 3, dtype=torch.bool)
    new_atoms, new_pairs = module(atoms, pairs, ends, near)
    relu, first, second = torch.relu, *module.atom_to_pair.weight.chunk(2)
    for i in range(4):
        mine = [relu(module.pair_to_atom(pairs[0, p])) for p in range(3) if i in ends[0, p]]
        received = sum(mine, torch.zeros(5).double())
        expected = relu(module.atom_mix(torch.cat([relu(module.atom_to_atom(atoms[0, i])), received])))
        assert torch.allclose(new_atoms[0, i], expected)
    for p, (i, j) in enumerate(ends[0].tolist()):
        both = [relu(first @ atoms[0, a] + second @ atoms[0, b] + module.atom_to_pair_bias) for a, b in ((i, j), (j, i))]
        expected = relu(module.pair_mix(torch.cat([both[0] + both[1], relu(module.pair_to_pair(pairs[0, p]))])))
        assert torch.allclose(new_pairs[0, p], expected)


@pytest.mark.parametrize("name", NAMES)
def test_files_are_small_and_load_frozen(name: str) -> None:
    path = shipped(f"{name}.safetensors", "this test")
    assert path.stat().st_size < 1.2e6
    net = load_weave(name, "cpu")  # type: ignore[arg-type]
    assert not net.training
    assert not any(weight.requires_grad for weight in net.parameters())
    assert net.settings["modules"] == (1 if "w1" in name else 2)
    assert net.features == ("simple" if "simple" in name else "full")
    with torch.no_grad():
        assert torch.isfinite(net(*batch_of([*SMILES, "C" * 150], net).tensors)).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_molecule_does_not_feel_its_batch(name: str) -> None:
    net = double(name)
    together = net(*batch_of([*SMILES, "C" * 120], net).tensors)[: len(SMILES)]
    alone = torch.cat([net(*batch_of([one], net).tensors) for one in SMILES])
    assert torch.allclose(together, alone, rtol=0, atol=1e-10)


@pytest.mark.parametrize("modules", [1, 2])
def test_padding_has_no_influence_and_no_gradient(modules: int) -> None:
    torch.manual_seed(0)
    net = Weave(modules=modules).eval()
    batch = batch_of(SMILES, net)
    before = net(*batch.tensors)
    atoms = torch.where(batch.there[..., None], batch.atoms, torch.randn_like(batch.atoms)).requires_grad_()
    pairs = torch.where(batch.near[..., None], batch.pairs, torch.randn_like(batch.pairs)).requires_grad_()
    after = net(atoms, pairs, *batch.tensors[2:])
    assert torch.equal(before, after)
    after.sum().backward()
    assert atoms.grad is not None
    assert pairs.grad is not None
    assert not atoms.grad[~batch.there].any()
    assert not pairs.grad[~batch.near].any()
    assert all(atoms.grad[i][there].any() for i, there in enumerate(batch.there))


def test_norms_of_training_leave_padding_out() -> None:
    norm = _weave.MaskedNorm(2, momentum=1.0)
    x = torch.tensor([[[1.0, 5.0], [3.0, 5.0]], [[5.0, 5.0], [100.0, -7.0]]])
    there = torch.tensor([[True, True], [True, False]])
    norm(x, there)
    assert torch.allclose(norm.mean, torch.tensor([3.0, 5.0]))
    assert torch.allclose(norm.variance, torch.tensor([8 / 3, 0.0]), atol=1e-6)


@pytest.mark.parametrize("name", ["weave-w1n2", "weave-w2n2"])
def test_attributions_are_complete_and_follow_the_atoms(name: str) -> None:
    net, mol = double(name), parse("CC(=O)Oc1ccccc1C(=O)N")
    order = [3, 11, 0, 7, 5, 12, 1, 9, 2, 10, 4, 8, 6]  # the new atom k is the old atom order[k]
    first, moved = graph(mol), graph(Chem.RenumberAtoms(mol, order))
    atoms, pairs, change = attributed(net, first)
    scale = float(atoms.abs().sum() + pairs.abs().sum())
    assert (atoms.sum() + pairs.sum()).item() == pytest.approx(change, abs=TOL * scale)
    again, other, changed = attributed(net, moved)
    assert changed == pytest.approx(change, abs=1e-9)
    assert torch.allclose(again, atoms[order], rtol=0, atol=2 * TOL * scale)
    place = {frozenset(ends): value for ends, value in zip(first.ends.tolist(), pairs.tolist(), strict=True)}
    expected = [place[frozenset((order[i], order[j]))] for i, j in moved.ends.tolist()]
    assert torch.allclose(other, torch.tensor(expected).double(), rtol=0, atol=2 * TOL * scale)


def test_one_module_cannot_tell_neighbours_apart_and_two_can() -> None:
    """Ring atoms beside C-Cl and beside C-F: the same element, bonds and number of atoms two bonds away."""
    mol = parse("Clc1ccc(F)cc1")
    beside_chlorine, beside_fluorine = [2, 7], [3, 6]
    one, two = double("weave-w1n2-simple"), double("weave-w2n2-simple")
    known = {}
    for net in (one, two):
        batch = batch_of(["Clc1ccc(F)cc1"], net)
        known[net] = net.embed(*batch.tensors)[0]
    assert torch.allclose(known[one][beside_chlorine], known[one][beside_fluorine], rtol=0, atol=1e-12)
    assert (known[two][beside_chlorine] - known[two][beside_fluorine]).abs().max() > 1e-3
    same, differ = (attributed(net, graph(mol, "simple"))[0] for net in (one, two))
    assert torch.allclose(same[beside_chlorine], same[beside_fluorine], rtol=0, atol=1e-12)
    assert (differ[beside_chlorine] - differ[beside_fluorine]).abs().max() > 1e-4 * differ.abs().sum()


@pytest.mark.parametrize("name", NAMES)
def test_the_molecule_of_zeros_says_about_the_prior(name: str) -> None:
    """7.7% of the assay is active; whatever the molecule, without its features there is no reason to say more or less."""
    net = load_weave(name, "cpu")  # type: ignore[arg-type]
    batch = batch_of(["CC(=O)Oc1ccccc1C(=O)O", "Cc1ccc(cc1)S(=O)(=O)NC(=O)NN1CC2CCCC2C1", "O=C(Nc1ccccc1)c1ccncc1"], net)
    said = torch.sigmoid(net(batch.atoms * 0, batch.pairs * 0, *batch.tensors[2:]))
    assert (said > 0.05).all()
    assert (said < 0.11).all()


def test_nothing_depends_on_the_values_in_a_batch() -> None:
    """One graph of operations for all molecules of a size, as compilers and CUDA graphs need it."""
    net = load_weave("weave-w2n2", "cpu")
    first, second = (batch_of([one], net) for one in ("CCO", "[Na+].CN"))
    program = torch.export.export(net, first.tensors).module()
    wide = Batch(
        *(
            torch.nn.functional.pad(t, (0, 0) * (t.dim() - 2) + (0, w.shape[1] - t.shape[1]))
            for t, w in zip(second.tensors, first.tensors, strict=True)
        )
    )
    assert torch.allclose(program(*wide.tensors), net(*second.tensors), atol=1e-5)


def test_a_file_gives_the_network_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Weave("simple", 2, hidden=8, depth=8, dense=(16,), tasks=3).eval()
    write_weave(net, tmp_path / "net.safetensors")
    again = read_weave(tmp_path / "net.safetensors")
    batch = batch_of(SMILES, net)
    assert again(*batch.tensors).shape == (len(SMILES), 3)
    assert torch.allclose(again(*batch.tensors), net(*batch.tensors), atol=0.02)  # float16 matrices


def test_unknown_networks_are_refused() -> None:
    with pytest.raises(OptionError, match="weave-w2n2-simple"):
        load_weave("weave-w9")  # type: ignore[arg-type]


def test_areas_under_curves_against_scikit_learn(training: ModuleType) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    label, score = random.integers(0, 2, 500), np.round(random.normal(size=500), 1)  # with ties
    assert training.roc_auc(score, label) == pytest.approx(metrics.roc_auc_score(label, score), abs=1e-12)
    assert training.average_precision(score, label) == pytest.approx(metrics.average_precision_score(label, score), abs=1e-12)


def test_a_small_network_learns_to_count_carbons(training: ModuleType) -> None:
    smiles = ["C" * n + "O" * m for n in range(1, 13) for m in range(1, 5)]
    graphs = [graph(parse(one), "simple") for one in smiles]
    carbons = [one.count("C") for one in smiles]
    sizes = {"hidden": 8, "depth": 8, "dense": (16,), "dropout": 0.0}
    net = training.fit(graphs, carbons, task="regression", modules=1, epochs=60, batch=16, rate=1e-2, **sizes)
    found = net(*collate(graphs).tensors)[:, 0].numpy()
    assert np.corrcoef(found, carbons)[0, 1] > 0.97


def card(name: str) -> float:
    """The ROC-AUC on test scaffolds that the model card claims."""
    text = shipped("molecules.md", "this test").read_text(encoding="utf-8")
    row = re.search(rf"^\| `{name}` \|(.*)\|$", text, re.MULTILINE)
    assert row is not None
    return float(row.group(1).split("|")[2])


def test_the_card_holds_on_molecules_of_test_scaffolds(data: Data, training: ModuleType) -> None:
    """150 actives and 300 inactives: the standard error of the area is about .025."""
    import _weave_data

    smiles, labels = _weave_data.read_assay(data("molecules/pcba_588342.csv.gz"))
    order = np.random.default_rng(1).permutation(len(smiles))
    graphs: dict[int, list[Graph]] = {0: [], 1: []}
    wanted = {0: 300, 1: 150}
    for i in order:
        held = graphs[labels[i]]
        if len(held) < wanted[labels[i]]:
            mol = parse(smiles[i])
            if _weave_data.side_of(_weave_data.scaffold_of(mol)) == 2:
                held.append(graph(mol))
        if all(len(graphs[label]) == wanted[label] for label in wanted):
            break
    net, every = load_weave("weave-w2n2", "cpu"), [*graphs[0], *graphs[1]]
    score = net(*collate(every).tensors)[:, 0].numpy()
    found = training.roc_auc(score, np.repeat([0, 1], [300, 150]))
    assert found == pytest.approx(card("weave-w2n2"), abs=0.075)
