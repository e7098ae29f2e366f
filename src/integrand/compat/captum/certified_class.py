"""Classes that are one of this package's methods: each gives its values alone, as Captum does, or with a certificate."""

from __future__ import annotations

import inspect
from typing import Any

from ...attribution import Attribution
from ...methods.method import Method
from .attribution_class import AttributionClass
from .captum_call import CaptumProblem
from .captum_errors import in_captums_words


class CertifiedClass(AttributionClass):
    """A class whose values come with a certificate.

    A class derived from this one has an ``_attribution`` with the arguments of its ``attribute``, but for
    ``return_convergence_delta``. It may take ``tol`` besides.

    Args:
        forward_func: the model, or any function of tensors.
    """

    def attribute_with_certificate(self, *args: Any, **kwargs: Any) -> Attribution:
        """The values of :meth:`attribute` with what is known of their error; not in Captum.

        Args:
            *args: as in :meth:`attribute`.
            **kwargs: as in :meth:`attribute`; where values are integrated or sampled, also ``tol``, the relative L1 error to
                reach (without ``n_steps`` or ``n_samples``) or to warn beyond.
        """
        tolerance = {"tol": kwargs.pop("tol")} if "tol" in kwargs and self._takes("tol") else {}
        given = inspect.signature(self.attribute).bind(*args, **kwargs)
        given.apply_defaults()
        given.arguments.pop("return_convergence_delta", None)
        with in_captums_words():
            return self._attribution(**given.arguments, **tolerance)

    def _takes(self, name: str) -> bool:
        return name in inspect.signature(self._attribution).parameters

    def _attribution(self, *_: Any, **__: Any) -> Attribution:
        raise NotImplementedError


def by_method(method: Method, problem: CaptumProblem, **options: Any) -> Attribution:
    """What one of :mod:`integrand.methods` gives for a problem in Captum's terms.

    Args:
        method: the method.
        problem: the model, its inputs and the target; its baselines are used where the method compares with any.
        **options: further options of a method's call, such as ``layer`` and ``chunk``.
    """
    x, start = problem.tree.build(problem.end), problem.tree.build(problem.start)
    options = {"baseline": start, "progress": False} | options
    baseline = options.pop("baseline")
    return method(problem.model, x, baseline, target=problem.target, args=problem.args, batched=True, **options)
