"""Objects that are no torch models, though people have them at hand: what each is, and what to pass instead."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

from torch import nn

from ..errors import ModelError
from ..words import shortened, shown

SAMPLED = (
    "For a model that can only be called, sample instead: from integrand.methods import Shapley, then "
    "Shapley()(lambda x: torch.from_numpy({call}), x)"
)
"""A way to explain what has no gradient, ready to be pasted."""

TREES = ("xgboost", "lightgbm", "catboost")
"""Packages of gradient-boosted trees, which are constant between their splits."""


def check_model(model: Any) -> None:
    """Refuse what is no function of tensors with gradients, with a message on what to pass instead.

    Raises:
        ModelError: always where the model cannot be explained as it is; what is merely unknown passes if it can be called.
    """
    said = _foreign(model)
    if said:
        raise ModelError(said)
    if not callable(model):
        kind = f"a {type(model).__name__}" if model is not None else "None"
        load = "; load a state_dict into its module with load_state_dict" if isinstance(model, Mapping) else ""
        raise ModelError(f"got {kind} as the model; expected an nn.Module or another callable of tensors{load}.")


def no_gradient_in(package: str) -> str:
    """What to say of an output that is an array of another package, and so has no gradient."""
    return (
        f"the model returns an array of {package}, which has no gradient; expected torch tensors throughout. Write the model "
        f"in torch; torch.from_numpy on the output does not bring the gradient back. {SAMPLED.format(call='model(x.numpy())')}."
    )


def _foreign(model: Any) -> str:
    """A message for an object that people take for a model; '' for one that may be."""
    package = type(model).__module__.partition(".")[0]
    name = type(model).__name__
    if isinstance(model, (str, PathLike)):
        where = shown(shortened(str(fspath(model)), 80))
        if where.lower().endswith(".onnx"):
            return f"got the path {where!r} as the model; expected the model itself. Load it first: integrand.from_onnx(path)."
        return (
            f"got the path {where!r} as the model; expected the model itself. Load it first: torch.jit.load(path) for "
            "TorchScript, torch.export.load(path).module() for torch.export, or, into the module that weights belong to, "
            "module.load_state_dict(torch.load(path, weights_only=True))."
        )
    if package in ("onnxruntime", "onnx"):
        return (
            f"got {name} of {package} as the model; expected a function of torch tensors with a gradient, which it has not. "
            "Convert the file: integrand.from_onnx('model.onnx') gives a torch module, compared with onnxruntime."
        )
    if isinstance(model, type):
        return f"got the class {model.__name__} as the model; expected an object of it: {model.__name__}(...)."
    if isinstance(model, nn.Module):
        return ""
    if package == "torch" and name == "ExportedProgram":
        return "got an ExportedProgram as the model; expected its module: pass program.module()."
    if package == "transformers" and hasattr(model, "tokenizer") and hasattr(model, "model"):
        return (
            f"got a pipeline of transformers ({name}) as the model; expected its model. For texts: from integrand import text, "
            "then text.explain(pipe.model, pipe.tokenizer, 'your text'); for other inputs pass pipe.model.eval()."
        )
    if package in TREES or (package == "sklearn" and _grows_trees(model)):
        return (
            f"got a {name} of {package} as the model; expected a function of tensors with a gradient. Trees have none: they "
            f"are constant between their splits. {SAMPLED.format(call=_call(model))}."
        )
    looks_alike = hasattr(model, "get_params") and hasattr(model, "predict") and not callable(model)
    if package == "sklearn" or looks_alike:
        return _scikit_learn(model, name)
    if package in ("keras", "tensorflow", "tf_keras"):
        return (
            f"got a {name} of Keras as the model; expected a function of torch tensors. Keras 3 runs on torch: set "
            "os.environ['KERAS_BACKEND'] = 'torch' before importing keras, load the model again, and pass it as it is."
        )
    return ""


def _grows_trees(model: Any) -> bool:
    return any(part in type(model).__module__ for part in (".tree", "ensemble"))


def _scikit_learn(model: Any, name: str) -> str:
    """The message for a model of scikit-learn: linear ones can be written in torch in a line."""
    lead = (
        f"got a {name} of scikit-learn as the model; expected a function of torch tensors, since integrated gradients needs "
        "gradients, which scikit-learn does not give."
    )
    if hasattr(model, "coef_") and hasattr(model, "intercept_"):
        return (
            f"{lead} A linear model is a line of torch: lambda x: x @ torch.as_tensor(model.coef_, dtype=x.dtype).reshape(-1, "
            "x.shape[1]).T + torch.as_tensor(model.intercept_, dtype=x.dtype)."
        )
    return f"{lead} {SAMPLED.format(call=_call(model))}."


def _call(model: Any) -> str:
    """How to call a model of another package on x, as code."""
    if type(model).__name__ == "Booster" and type(model).__module__.startswith("xgboost"):
        return "model.predict(xgboost.DMatrix(x.numpy()))"
    return f"model.{'predict_proba' if hasattr(model, 'predict_proba') else 'predict'}(x.numpy())"
