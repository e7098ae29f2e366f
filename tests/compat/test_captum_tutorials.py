"""What Captum's tutorials call, on small random models: our classes give Captum's numbers."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

from integrand.compat import captum as compat
from integrand.errors import ZeroAttributionWarning

from .pairs import asked, plain, reference, same, seeded

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:captum", "ignore::DeprecationWarning", "ignore::FutureWarning")


def quiet(call, *args, **kwargs):
    """Without Captum's warnings, or ours about few steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*args, **kwargs)


def tunnelled(net, *args, seed, layer=None, name="IntegratedGradients", **kwargs):
    """NoiseTunnel around a class: ours in ours, ours in Captum's, and Captum's in Captum's; the first two against the last."""
    built = (net,) if layer is None else (net, layer)
    pairs = ((compat, compat), (reference, compat), (reference, reference))
    found = []
    for outer, inner in pairs:
        explainer = quiet(outer.NoiseTunnel, quiet(getattr(inner, name), *built))
        seeded(seed)
        found.append(plain(quiet(explainer.attribute, *args, **kwargs)))
    for ours in found[:2]:
        torch.testing.assert_close(ours, found[2], rtol=1e-4, atol=1e-6)
    return found[0]


# Images: CIFAR_TorchVision_Interpret, Resnet_TorchVision_Interpret


class Cifar(nn.Module):
    """The tutorial's network, with fewer channels."""

    def __init__(self, pool=nn.MaxPool2d):
        super().__init__()
        torch.manual_seed(0)
        self.conv1, self.pool1, self.conv2, self.pool2 = (
            nn.Conv2d(3, 4, 5),
            pool(2, 2),
            nn.Conv2d(4, 6, 5),
            pool(2, 2),
        )
        self.fc1, self.fc2, self.fc3 = nn.Linear(6 * 5 * 5, 20), nn.Linear(20, 12), nn.Linear(12, 10)
        self.relu1, self.relu2, self.relu3, self.relu4 = (nn.ReLU() for _ in range(4))

    def forward(self, x):
        x = self.pool2(self.relu2(self.conv2(self.pool1(self.relu1(self.conv1(x))))))
        return self.fc3(self.relu4(self.fc2(self.relu3(self.fc1(x.view(-1, 6 * 5 * 5))))))


@pytest.fixture(scope="module")
def cifar():
    return Cifar().eval(), torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1)) * 2 - 1


def test_images_by_gradients(cifar):
    net, images = cifar
    labels = torch.tensor([3, 7])
    x = images.clone().requires_grad_()
    same("Saliency", (net,), x, target=labels)
    options = {"baselines": images * 0, "return_convergence_delta": True, "n_steps": 20}
    values, delta = same("IntegratedGradients", (net,), x, target=labels, rtol=1e-4, atol=1e-5, **options)
    assert values.shape == images.shape
    assert delta.shape == (2,)
    options = {"nt_type": "smoothgrad_sq", "nt_samples": 3, "stdevs": 0.2, "n_steps": 10}
    tunnelled(net, images, seed=2, baselines=images * 0, target=labels, **options)


def test_images_by_references(cifar):
    net, images = cifar
    labels, smooth = torch.tensor([3, 7]), Cifar(nn.AvgPool2d)
    same("DeepLift", (smooth,), images, baselines=images * 0, target=labels, rtol=1e-4, atol=1e-5)
    _, delta = compat.DeepLift(net).attribute(images, baselines=images * 0, target=labels, return_convergence_delta=True)
    assert delta.abs().max() < 1e-6  # Captum's rule for max pooling after a rectifier is another one, and not complete
    start = torch.cat([images[:1] * 0, images[:1]])
    same(
        "GradientShap", (net,), images[:1], n_samples=20, stdevs=0.0001, baselines=start, target=3, seed=0, rtol=1e-4, atol=1e-5
    )


def test_images_by_occlusion(cifar):
    net, images = cifar
    options = {"strides": (3, 8, 8), "sliding_window_shapes": (3, 15, 15), "baselines": 0, "target": 3}
    values = same("Occlusion", (net,), images[:1], rtol=1e-4, atol=1e-5, **options)
    assert values.shape == (1, 3, 32, 32)


def test_layers_of_images(cifar):
    net, images = cifar
    values = same("LayerIntegratedGradients", (net, net.conv1), images, target=3, n_steps=10, rtol=1e-4, atol=1e-5)
    large = compat.LayerIntegratedGradients.interpolate(values, (32, 32))
    torch.testing.assert_close(large, functional.interpolate(values, (32, 32)))


def test_max_pooling_after_a_rectifier():
    """max(relu(x)) changes by 2 from (-1, 1) to (3, -2): from the second number's 1 to the first one's 3."""
    net, x, start = (
        nn.Sequential(nn.ReLU(), nn.MaxPool1d(2), nn.Flatten()),
        torch.tensor([[[3.0, -2.0]]]),
        torch.tensor([[[-1.0, 1.0]]]),
    )
    options = {"baselines": start, "target": 0}
    torch.testing.assert_close(compat.DeepLift(net).attribute(x, **options), torch.tensor([[[2.0, 0.0]]]))
    torch.testing.assert_close(asked(reference, "DeepLift", (net,), ((x,), options)), torch.tensor([[[3.0, 0.0]]]))


# Tables: House_Prices_Regression_Interpret, Titanic_Basic_Interpret


class Prices(nn.Module):
    """The tutorial's network, with fewer neurons."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.lin1, self.lin2, self.lin3, self.lin4 = nn.Linear(8, 12), nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 1)
        self.relu1, self.relu2, self.relu3 = (nn.ReLU() for _ in range(3))

    def forward(self, x):
        return self.lin4(self.relu3(self.lin3(self.relu2(self.lin2(self.relu1(self.lin1(x)))))))


@pytest.fixture(scope="module")
def houses():
    generator = torch.Generator().manual_seed(4)
    return Prices().eval(), torch.randn(30, 8, generator=generator), torch.randn(12, 8, generator=generator)


def test_prices(houses):
    net, train, test = houses
    same("IntegratedGradients", (net,), test, n_steps=50)
    tunnelled(net, test, seed=1)
    same("DeepLift", (net,), test, rtol=1e-4, atol=1e-5)
    same("GradientShap", (net,), test, train, seed=3, rtol=1e-4, atol=1e-5)
    same("FeatureAblation", (net,), test, rtol=1e-4, atol=1e-5)


def test_prices_by_layers(houses):
    net, _, test = houses
    for to_input in (True, False):
        same("LayerConductance", (net, net.lin2), test, n_steps=18, attribute_to_layer_input=to_input, rtol=1e-4, atol=1e-5)
    same("LayerConductance", (net, net.lin1), test, n_steps=18, return_convergence_delta=True, rtol=1e-4, atol=1e-5)


def test_survivors():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(12, 12), nn.Sigmoid(), nn.Linear(12, 8), nn.Sigmoid(), nn.Linear(8, 2), nn.Softmax(dim=1))
    test = torch.randn(6, 12, generator=torch.Generator().manual_seed(2)).requires_grad_()
    same("IntegratedGradients", (net,), test, target=1, return_convergence_delta=True)
    same("LayerConductance", (net, net[1]), test, target=1, rtol=1e-4, atol=1e-6)
    for neuron in (0, 10):  # not by the trapezoid rule, which is the default and not right in Captum
        options = {"neuron_selector": neuron, "target": 1, "method": "gausslegendre"}
        same("NeuronConductance", (net, net[1]), test, rtol=1e-4, atol=1e-6, **options)


# Text: Bert_SQUAD_Interpret (parts 1 and 2), IMDB_TorchText_Interpret


@pytest.fixture(scope="module")
def bert():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=20,
        attn_implementation="eager",
    )
    model = transformers.BertForQuestionAnswering(config).eval()
    with torch.no_grad():  # otherwise the scores of a random network hardly depend on the words
        for parameter in model.parameters():
            parameter.mul_(2 if parameter.ndim > 1 else 1)
    return model


class Question:
    """A question with its context as ids, types and positions, and what the tutorial compares it with."""

    ids = torch.tensor([[1, 7, 9, 12, 2, 30, 31, 5, 8, 2]])
    types = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1, 1, 1]])
    positions = torch.arange(10)[None]
    mask = torch.ones(1, 10, dtype=torch.long)
    pad_ids = torch.tensor([[1, 0, 0, 0, 2, 0, 0, 0, 0, 2]])
    pad_types = torch.zeros(1, 10, dtype=torch.long)
    pad_positions = torch.zeros(1, 10, dtype=torch.long)


def answers(model):
    """The tutorial's forward function: the start's or the end's highest score."""

    def forward(inputs, token_type_ids=None, position_ids=None, attention_mask=None, position=0):
        given = {"inputs_embeds" if inputs.is_floating_point() else "input_ids": inputs}
        output = model(**given, token_type_ids=token_type_ids, position_ids=position_ids, attention_mask=attention_mask)
        return (output.start_logits, output.end_logits)[position].max(1).values

    return forward


@pytest.mark.parametrize("position", [0, 1])
def test_bert_embeddings(bert, position):
    further = (Question.types, Question.positions, Question.mask, position)
    options = {
        "baselines": Question.pad_ids,
        "additional_forward_args": further,
        "return_convergence_delta": True,
        "n_steps": 20,
    }
    values, _ = same(
        "LayerIntegratedGradients", (answers(bert), bert.bert.embeddings), Question.ids, rtol=1e-4, atol=1e-5, **options
    )
    assert values.shape == (1, 10, 16)


def test_bert_sub_embeddings_as_a_list_of_layers(bert):
    parts = bert.bert.embeddings
    layers = [parts.word_embeddings, parts.token_type_embeddings, parts.position_embeddings]
    inputs = (Question.ids, Question.types, Question.positions)
    baselines = (Question.pad_ids, Question.pad_types, Question.pad_positions)
    options = {"baselines": baselines, "additional_forward_args": (Question.mask, 0), "n_steps": 20}
    values = same("LayerIntegratedGradients", (answers(bert), layers), inputs, rtol=1e-4, atol=1e-5, **options)
    assert isinstance(values, list)
    assert [tuple(value.shape) for value in values] == [(1, 10, 16)] * 3


def test_bert_layers_by_conductance(bert):
    bert = copy.deepcopy(bert).double()  # conductances of attention weights are small differences
    layer = quiet(reference.configure_interpretable_embedding_layer, bert, "bert.embeddings.word_embeddings")
    try:
        start, end = (layer.indices_to_embeddings(ids).detach() for ids in (Question.pad_ids, Question.ids))
        further = (Question.types, Question.positions, Question.mask, 0)
        options = {"baselines": start, "additional_forward_args": further, "n_steps": 8}
        forward = answers(bert)
        same("IntegratedGradients", (forward,), end, rtol=1e-4, atol=1e-5, **options)
        for block in bert.bert.encoder.layer:
            same("LayerConductance", (forward, block), end, rtol=1e-4, atol=1e-7, **options)
        attention = (forward, bert.bert.encoder.layer[0].attention.self)
        theirs = asked(reference, "LayerConductance", attention, ((end,), options | {"n_steps": 100}))
        with pytest.warns(ZeroAttributionWarning, match="tensor 1 of the 2 that the layer gives"):
            ours = compat.LayerConductance(*attention).attribute(end, **options | {"n_steps": 100})
        torch.testing.assert_close(ours[0], theirs[0], rtol=1e-4, atol=1e-7)
        assert not ours[1].any()  # weights, from which the other tensor was made: Captum counts them twice
    finally:
        reference.remove_interpretable_embedding_layer(bert, layer)


class Reviews(nn.Module):
    """Words, convolutions over two and three of them, one number."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.embedding = nn.Embedding(50, 8)
        self.convs = nn.ModuleList(nn.Conv2d(1, 5, (size, 8)) for size in (2, 3))
        self.fc = nn.Linear(10, 1)

    def forward(self, text):
        embedded = self.embedding(text)[:, None]
        maps = (functional.relu(conv(embedded))[..., 0] for conv in self.convs)
        return self.fc(torch.cat([one.max(2).values for one in maps], 1)).sigmoid()


def test_reviews():
    net, words = Reviews().eval(), torch.tensor([[4, 9, 33, 2, 17, 0, 0]])
    token = reference.TokenReferenceBase(reference_token_idx=0)
    start = token.generate_reference(7, device="cpu").unsqueeze(0)
    options = {"n_steps": 50, "return_convergence_delta": True}
    same("LayerIntegratedGradients", (net, net.embedding), words, start, rtol=1e-4, atol=1e-6, **options)


# Images and questions: Multimodal_VQA_Interpret


class Asked(nn.Module):
    """A question about an image: a text branch, an image branch, and a length that is not explained."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.embedding, self.drop, self.lstm = nn.Embedding(20, 6), nn.Dropout(0.5), nn.LSTM(6, 8)
        self.image, self.classifier = nn.Conv2d(3, 8, 3), nn.Linear(16, 5)

    def forward(self, v, q, q_len):
        said = self.lstm(self.drop(self.embedding(q)).tanh().transpose(0, 1))[0]
        last = said[q_len - 1, torch.arange(len(q))]
        return self.classifier(torch.cat([self.image(v).relu().amax((2, 3)), last], 1))


@pytest.fixture(scope="module")
def question():
    generator = torch.Generator().manual_seed(6)
    token = reference.TokenReferenceBase(reference_token_idx=0)
    image, words = torch.rand(1, 3, 8, 8, generator=generator), torch.tensor([[3, 11, 7, 0, 0]])
    return (
        Asked().eval(),
        (image, words),
        (image * 0, token.generate_reference(5, device="cpu").unsqueeze(0)),
        torch.tensor([3]),
    )


def test_questions_about_images_by_layers(question):
    net, inputs, baselines, length = question
    wrapped = reference_wrapper(net)
    layers = [wrapped.input_maps["v"], wrapped.module.embedding]
    options = {"baselines": baselines, "target": 2, "additional_forward_args": length, "n_steps": 30}
    image, words = same("LayerIntegratedGradients", (wrapped, layers), inputs, rtol=1e-4, atol=1e-5, **options)
    assert (image.shape, words.shape) == ((1, 3, 8, 8), (1, 5, 6))


def test_questions_about_images_by_inputs(question):
    net, (image, words), (black, pads), length = question
    layer = quiet(reference.configure_interpretable_embedding_layer, net, "embedding")
    try:
        said, silence = (layer.indices_to_embeddings(ids).detach() for ids in (words, pads))
        options = {"baselines": (black, silence), "target": 2, "additional_forward_args": length}
        same("IntegratedGradients", (net,), (image, said), n_steps=30, rtol=1e-4, atol=1e-5, **options)
        tunnelled(net, (image, said), seed=3, nt_samples=2, n_steps=10, stdevs=0.1, **options)
    finally:
        reference.remove_interpretable_embedding_layer(net, layer)


def reference_wrapper(net):
    """Captum's wrapper, which makes layers of a model's inputs."""
    from captum.attr._utils.input_layer_wrapper import ModelInputWrapper

    return ModelInputWrapper(net)
