"""Code with everything that it is given: called with the formula's tensors, it returns results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from derive.checker.load import Code
from derive.checker.remote import EndedError
from derive.checker.runs import (
    Answer,
    Given,
    How,
    call_target,
    describe_error,
    pick_results,
    run_target,
)
from derive.checker.sources import evaluate_source
from derive.errors import DeriveError


@dataclass(frozen=True)
class Program:
    """Code and the source of each of its arguments, parameters and constructor's arguments."""

    code: Code
    arguments: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    constructor: Mapping[str, str] = field(default_factory=dict)
    letters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    results: Mapping[str, str] = field(default_factory=dict)  # where a result has another layout
    names: tuple[str, ...] = ()  # of the formula's results
    told: tuple[str, ...] = ()  # arguments and parameters whose source a person has said
    doubt: int = 0  # how little names tell of the numbers that were filled in; 0: they tell all
    assumed: tuple[str, ...] = ()  # what nobody has said, "W=W.T"; no verdict of "same" rests on it

    def run(
        self, values: Mapping[str, Any], sizes: Mapping[str, Any], how: How | None = None
    ) -> Answer:
        """One run on inputs of the formula, which are left alone.

        CannotRunError with the line where the code stops.
        """
        return self._ask(values, sizes, how or How())

    def _ask(self, values: Mapping[str, Any], sizes: Mapping[str, Any], how: How) -> Answer:
        import torch

        given = self._find_own(values, sizes)
        found = run_target(self.code.target, given, replace(how, names=self.names), self.code.path)
        is_answer = isinstance(found, Answer)  # else somebody has answered in its place
        told = (*found.results, *found.gradients.values()) if is_answer else (found,)
        if not all(each is None or isinstance(each, torch.Tensor) for each in told):
            raise EndedError("the process that ran the code answered what is no result")
        return found

    def differentiate(
        self, values: Mapping[str, Any], sizes: Mapping[str, Any], how: How
    ) -> tuple[Answer, dict[str, Any]]:
        """What a run gives, and the gradient of the results' weighted sum by each value.

        `values` are leaves. The code tells the gradients by its own arguments; from there on they
        go through what the arguments are made of.
        """
        import torch

        given = self.find_given(values, sizes)
        answer = self._ask(values, sizes, how)
        by_name = {**given.arguments, **given.parameters}
        told = {n: g for n, g in answer.gradients.items() if g is not None}
        made = [name for name in told if by_name[name].requires_grad]
        leaves = {n: v for n, v in values.items() if getattr(v, "requires_grad", False)}
        if not made:
            return answer, dict.fromkeys(leaves)
        found = torch.autograd.grad(
            [by_name[name] for name in made],
            list(leaves.values()),
            [told[name] for name in made],
            allow_unused=True,
        )
        return answer, dict(zip(leaves, found, strict=True))

    def _find_own(self, values: Mapping[str, Any], sizes: Mapping[str, Any]) -> Given:
        """What everything is given, in memory of its own."""
        own = {k: v.detach().clone() if hasattr(v, "clone") else v for k, v in values.items()}
        try:
            return self.find_given(own, sizes)
        except DeriveError:
            raise
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise describe_error(error, self.code.path) from error  # it does not fit these sizes

    def find_given(self, values: Mapping[str, Any], sizes: Mapping[str, Any]) -> Given:
        """What everything is given."""

        def read(sources: Mapping[str, str]) -> dict[str, Any]:
            return {
                name: evaluate_source(source, values, sizes, self.letters)
                for name, source in sources.items()
            }

        return Given(read(self.arguments), read(self.parameters), read(self.constructor))

    def call(self, values: Mapping[str, Any], sizes: Mapping[str, Any]) -> Any:
        """What the code returns, called here and now."""
        given = self.find_given(values, sizes)
        found = call_target(self.code.target, given.arguments, given.parameters, given.constructor)
        return pick_results(found, self.names)

    def describe(self) -> tuple[str, ...]:
        """The arguments whose source is not their own name, as reports say them."""
        everything = {**self.constructor, **self.arguments, **self.parameters}
        said = [f"{name} = {source}" for name, source in everything.items() if name != source]
        return tuple(said + [f"{name} as {source}" for name, source in self.results.items()])
