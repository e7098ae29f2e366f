"""Those who explain in this process: integrand, Captum's IntegratedGradients, and the rules of others by hand."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import integrand as ig

from .language import END, FIRST, LOG_ODDS, MEAN, ZERO, Language, Question
from .measures import Floats
from .prompts import Prompt


@dataclass(frozen=True)
class Explanation:
    """An answer of an explainer.

    Attributes:
        tokens: (T,).
        features: (T * width,), where it gives them.
        gradients: evaluations spent.
        seconds: of this answer.
        facts: what its certificate says, where it has one.
    """

    tokens: Floats
    features: Floats | None
    gradients: int
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict)


Explainer = Callable[[Question], Explanation]


def explanation(question: Question, features: Floats, gradients: int, seconds: float, **facts: Any) -> Explanation:
    """An answer from the values of all features."""
    flat = np.asarray(features, dtype=np.float64).ravel()
    return Explanation(flat.reshape(question.x.shape[1], -1).sum(1), flat, gradients, seconds, facts)


def integrand_to(tol: float) -> Explainer:
    """Explain by integrand, to a tolerance."""

    def explain(question: Question) -> Explanation:
        contrast = question.score == LOG_ODDS
        target: Any = ig.targets.against(question.token, question.other) if contrast else question.token
        score: Any = "logit" if contrast else question.score
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = ig.integrated_gradients(
                question.network, question.x, question.start, target=target, score=score, tol=tol, progress=False
            )
        seconds = time.perf_counter() - start
        only = result.certificate.only
        sums = result.sums(torch.arange(question.x.shape[1])[:, None].expand(question.x.shape[1:]))
        facts = {"tol": tol, "claimed": only.error, "converged": only.converged, "token errors": sums.errors[0].tolist()}
        assert isinstance(result.values, torch.Tensor)
        return explanation(question, result.values.double().numpy(), only.gradients, seconds, **facts)

    return explain


def captum_with(steps: int) -> Explainer:
    """Explain by Captum's IntegratedGradients at embeddings, with its default rule."""
    from captum.attr import IntegratedGradients

    def explain(question: Question) -> Explanation:
        start = time.perf_counter()
        values = IntegratedGradients(question).attribute(question.x, question.start, n_steps=steps)
        return explanation(question, values.detach().double().numpy(), steps, time.perf_counter() - start)

    return explain


def riemann_right(steps: int) -> Explainer:
    """Explain by the rule of EAP-IG (github.com/hannamw/EAP-IG, not on PyPI): a mean over k / steps from 1 / steps on."""

    def explain(question: Question) -> Explanation:
        start = time.perf_counter()
        values = question.terms(np.arange(1, steps + 1) / steps).mean(0)
        return explanation(question, values, steps, time.perf_counter() - start)

    return explain


def trapezoids(steps: int) -> Explainer:
    """Explain by the trapezoid rule of FlashTrace's own integrated gradients, with the step of 1 / steps that it takes."""

    def explain(question: Question) -> Explanation:
        start, weights = time.perf_counter(), np.full(steps, 1 / steps)
        weights[[0, -1]] /= 2
        values = weights @ question.terms(np.linspace(0, 1, steps))
        return explanation(question, values, steps, time.perf_counter() - start)

    return explain


CAPTUM, RIEMANN, TRAPEZOIDS = "Captum, 50 steps", "5 right Riemann (EAP-IG's rule)", "20 trapezoids (FlashTrace's rule)"
BY_HAND: dict[str, Callable[[], Explainer]] = {
    CAPTUM: lambda: captum_with(50),
    RIEMANN: lambda: riemann_right(5),
    TRAPEZOIDS: lambda: trapezoids(20),
}


def integrand_name(tol: float) -> str:
    """The name of integrand in tables."""
    return f"integrand, {tol:.0%}"


def generated_to(language: Language, prompt: Prompt, start: str, score: str, tol: float) -> tuple[Floats, dict[str, Any]]:
    """The tokens' values by ``text.generated``, as a user calls it, and what the certificate says."""
    from integrand import text

    fills: dict[str, Any] = {MEAN: "mean", END: language.tokenizer.eos_token_id, FIRST: 0, ZERO: "zero"}
    options: dict[str, Any] = {"score": score}
    if score == LOG_ODDS:
        options = {"score": "logit", "against": language.token(prompt.rather_than)}
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = text.generated(
            language.model,
            language.tokenizer,
            prompt.text,
            continuation=[language.token(prompt.answer)],
            baseline=fills[start],
            tol=tol,
            progress=False,
            **options,
        )
    seconds, only = time.perf_counter() - begin, result.certificate.only
    errors = np.asarray(result.errors)[0]
    facts = {"tol": tol, "claimed": only.error, "converged": only.converged, "token errors": errors.tolist()}
    return np.asarray(result.values)[0], facts | {"gradients": only.gradients, "seconds": seconds}
